"""Machine files: those that come along, and everything that can be wrong with others."""

from __future__ import annotations

import json
import math
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pccl_jax.errors import ConfigurationError
from pccl_jax.simulate import Machine, load_machine, machine_names, parse_machine

SHIPPED = files("pccl_jax.simulate") / "machines"


def document(name: str = "perlmutter") -> dict[str, Any]:
    text: dict[str, Any] = json.loads((SHIPPED / f"{name}.json").read_text(encoding="utf-8"))
    return text


def parsed(content: Any) -> Machine:
    return parse_machine(json.dumps(content).encode())


def changed(path: str, value: Any) -> dict[str, Any]:
    whole = document()
    at, *rest = path.split(".")
    inner = whole
    while rest:
        inner, at, rest = inner[at], rest[0], rest[1:]
    inner[at] = value
    return whole


def figures(content: dict[str, Any], prefix: str = "") -> list[str]:
    """The name of every figure in a file."""
    names = []
    for key, value in content.items():
        if isinstance(value, dict):
            names += figures(value, f"{prefix}{key}.") if key != "sources" else []
        elif key not in ("schema", "version", "name", "description"):
            names.append(f"{prefix}{key}")
    return names


@pytest.mark.parametrize("name", machine_names())
def test_every_figure_has_its_source(name: str) -> None:
    content = document(name)
    assert load_machine(name).name == name
    assert sorted(content["sources"]) == sorted(figures(content))
    assert all(len(text) > 5 for text in content["sources"].values())


def test_units() -> None:
    machine = load_machine("perlmutter")
    assert machine.network.bandwidth_Bps == 25e9
    assert machine.node.latency_s == pytest.approx(3.4e-6)
    assert math.isinf(machine.node.shared_Bps)
    assert machine.segment_bytes == 512 * 1024
    assert machine.nccl[1].tree_bandwidth_share == 0.86
    assert (load_machine("frontier").network.group_nodes, machine.network.group_nodes) == (128, 0)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    whole = document("cluster") | {"name": "mine"}
    del whole["sources"], whole["description"]
    path.write_text(json.dumps(whole))
    assert load_machine(path) == load_machine(str(path))
    assert load_machine(path).network == load_machine("cluster").network


def test_unknown_names_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="unknown machine 'nope'; known are cluster, fron"):
        load_machine("nope")
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(ConfigurationError, match="cannot be read"):
            load_machine(path)


@pytest.mark.parametrize("path", figures(document())[:-1])
@pytest.mark.parametrize("value", ["25", -1, True, [], {}, math.nan, math.inf, 1e300, 10**400])
def test_figures_of_a_wrong_type_or_size(path: str, value: Any) -> None:
    if value is True and path in ("shuffles", "node.direct"):
        return
    with pytest.raises(ConfigurationError, match=f"for {path}, expected"):
        parsed(changed(path, value))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("schema", "pccl_jax.bench", "for schema, expected 'pccl_jax.machine'"),
        ("version", 2, "got 2 for version, expected 1"),
        ("version", True, "got True for version"),
        ("nodes", 1.5, "got 1.5 for nodes, expected a whole number from 1 to"),
        ("nodes", 0, "got 0 for nodes"),
        ("name", None, "got None for name, expected a text"),
        ("name", "x" * 20_000, "xxx... for name, expected a text"),
        ("node", 3, "got 3 for node., expected an object"),
        ("nccl", {}, "got {} for nccl, expected a list"),
        ("nccl", [{}] * 99, "for nccl, expected a list of at most 16"),
        ("nccl", [{"protocol": "LL"}], r"nccl\[0\].base_us is missing"),
        ("sources", {"nodes": 3}, "got 3 for sources.nodes, expected a text"),
        (
            "nccl",
            [
                {
                    "protocol": "LL",
                    "base_us": 1,
                    "node_us": 1,
                    "network_us": 1,
                    "post_us": 1,
                    "bandwidth_share": 2,
                }
            ],
            "got 2 for nccl.0..bandwidth_share, expected a number f",
        ),
        ("latency_us", 4, "the document has the unknown latency_us; remove it or correct"),
        ("network.nic", 4, "network. has the unknown nic"),
    ],
)
def test_other_mistakes(path: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parsed(changed(path, value))


@pytest.mark.parametrize("path", figures(document())[:-1])
def test_missing_figures(path: str) -> None:
    whole = document()
    *above, last = path.split(".")
    inner = whole
    for key in above:
        inner = inner[key]
    del inner[last]
    with pytest.raises(ConfigurationError, match=f"{path} is missing"):
        parsed(whole)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"a": 1, "a": 2}', "the same member twice"),
        (b"[]", r"got \[\] for the document, expected an object"),
        (b" " * (2 << 20), "more than 1048576 bytes"),
        (b"__import__('os').abort()", "not valid JSON"),
    ],
)
def test_hostile_files(content: bytes, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_machine(content)


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=50)
@given(st.sampled_from([*figures(document()), "node", "network", "name", "sources"]), _JSON)
def test_any_value_is_taken_or_refused(path: str, value: Any) -> None:
    try:
        machine = parsed(changed(path, value))
    except ConfigurationError:
        return
    assert isinstance(machine, Machine)
