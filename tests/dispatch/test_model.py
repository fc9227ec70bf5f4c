"""The model's file: what is written is read, and nothing else is."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import everywhere, model, threshold, trained_model

from pccl_jax.dispatch.model import LARGEST_FILE, parse
from pccl_jax.errors import ConfigurationError

MODEL = model(all_gather=threshold("ring", "rec", 12.0), all_reduce=everywhere("latency"))
DOCUMENT = json.loads(MODEL.to_json())
SVM = ("collectives", "all_gather")


def changed(path: tuple[Any, ...], value: Any) -> str:
    """The file with another value at a path; a callable is applied to what is there."""
    document = json.loads(MODEL.to_json())
    at = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value(at.get(path[-1])) if callable(value) else value
    return json.dumps(document)


@pytest.mark.parametrize("made", [MODEL, trained_model()], ids=["small", "trained"])
def test_round_trip_is_exact(made: Any) -> None:
    again = parse(made.to_json())
    assert asdict(again) == asdict(made)
    assert again.digest == made.digest


def test_the_digest_is_of_what_decides() -> None:
    later = parse(changed(("made",), {"date": "later"}))
    assert later.digest == MODEL.digest
    other = parse(changed((*SVM, "gamma"), 0.5))
    assert other.digest != MODEL.digest


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("schema",), "pickle", "'pickle' as schema, expected 'pccl_jax.model'"),
        (("version",), 2, "has 2 as version, expected 1"),
        (("version",), True, "as version"),
        (("version",), "1", "as version"),
        (("simulated",), 0, "as simulated"),
        (("machine",), [], "as machine"),
        (("machine",), {"cpu": {}}, "machine.cpu"),
        (("made",), {"a": "x" * 2000}, "made.a"),
        (("collectives",), {"all_to_all": {}}, "as collectives"),
        (SVM, None, "as all_gather"),
        ((*SVM, "classes"), [], "1 to 32 names"),
        ((*SVM, "classes"), ["ring", "ring"], "names that differ"),
        ((*SVM, "classes"), ["__import__('os')", "ring"], "a name like"),
        ((*SVM, "classes"), [f"a{i}" for i in range(40)], "1 to 32 names"),
        ((*SVM, "features"), ["log2_moon"], "a name like"),
        ((*SVM, "mean"), [1.0, 2.0], "a list of 1"),
        ((*SVM, "scale"), [0.0], "positive numbers"),
        ((*SVM, "gamma"), -1.0, "no negative number"),
        ((*SVM, "gamma"), "1", "a finite number"),
        ((*SVM, "gamma"), 10**400, "a finite number"),
        ((*SVM, "counts"), [1, 10**9], "a whole number up to 20000"),
        ((*SVM, "counts"), [20_000, 20_000], "in sum"),
        ((*SVM, "counts"), [1, 2], "vectors, expected a list of 3"),
        ((*SVM, "vectors"), [[1.0], [1.0, 2.0]], "lists of 1 numbers"),
        ((*SVM, "vectors"), [[1.0], [None]], "a finite number"),
        ((*SVM, "coefficients"), [[1.0]], "lists of 2 numbers"),
        ((*SVM, "intercepts"), [True], "a finite number"),
    ],
)
def test_what_is_wrong_is_said(path: tuple[Any, ...], value: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse(changed(path, value))
    assert message in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{", "NaN", "[" * 200_000, '{"a":' * 100_000, "9" * 5000, "\x00"],
    ids=repr,
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse(text)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_are_finite(number: str) -> None:
    text = changed((*SVM, "gamma"), "HERE").replace('"HERE"', number)
    with pytest.raises(ConfigurationError, match=r"not a number|finite"):
        parse(text)


def test_a_huge_text_is_not_parsed() -> None:
    with pytest.raises(ConfigurationError, match="at most"):
        parse(" " * (LARGEST_FILE + 1))


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
PATHS = [(key,) for key in DOCUMENT] + [(*SVM, key) for key in DOCUMENT["collectives"][SVM[1]]]


@settings(max_examples=300, deadline=None)
@given(path=st.sampled_from(PATHS), value=JSON)
def test_any_value_anywhere_is_taken_or_refused(path: tuple[str, ...], value: Any) -> None:
    with contextlib.suppress(ConfigurationError):
        parse(changed(path, value))
