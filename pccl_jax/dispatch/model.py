"""The learned model: support vector machines as plain numbers, in a versioned JSON file.

A file is data and nothing else: it is read with a limit on its size, every value is checked
before it is used, and a name of an algorithm only ever selects among those that can serve.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pccl_jax.dispatch.samples import Point
from pccl_jax.errors import ConfigurationError
from pccl_jax.types import Collective

SCHEMA = "pccl_jax.model"
#: Raised by one whenever a reader of the file would have to change.
VERSION = 1

#: Limits on what is read: a file far beyond what tuning writes is a mistake or an attack.
LARGEST_FILE = 8 << 20
MOST_CLASSES = 32
MOST_VECTORS = 20_000

#: What the machines look at, by the name in the file.
FEATURES: dict[str, Callable[[Point], float]] = {
    "log2_bytes": lambda p: math.log2(max(1, p.nbytes)),
    "log2_ranks": lambda p: math.log2(p.ranks),
    "log2_nodes": lambda p: math.log2(p.nodes),
    "log2_ranks_per_process": lambda p: math.log2(p.ranks_per_process),
}

Scalar = str | int | float | bool | None


@dataclass(frozen=True, eq=False)
class Svm:
    """A multi-class RBF support vector machine behind a scaler, for one collective.

    Compared by identity: to hash thousands of numbers takes longer than a prediction.

    With ``k`` classes, ``v`` support vectors and ``f`` features:

    Attributes:
        classes: names of the algorithms; with one class there are no vectors.
        features: names in ``FEATURES``.
        lowest, highest: the range of each feature that it was trained on, ``[f]``.
        mean, scale: of the scaler, ``[f]``.
        gamma: the kernel is ``exp(-gamma |x - v|^2)``.
        vectors: support vectors in order of their class, ``[v][f]``.
        counts: support vectors of each class, ``[k]``.
        coefficients: dual coefficients as libsvm has them, ``[k - 1][v]``.
        intercepts: one for each pair of classes (0, 1), (0, 2), ..., (1, 2), ...; a positive
            decision is a vote for the first of the pair.
        quality: figures on held-out points, for people.
    """

    classes: tuple[str, ...]
    features: tuple[str, ...]
    lowest: tuple[float, ...]
    highest: tuple[float, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    gamma: float
    vectors: tuple[tuple[float, ...], ...]
    counts: tuple[int, ...]
    coefficients: tuple[tuple[float, ...], ...]
    intercepts: tuple[float, ...]
    quality: Mapping[str, Scalar] = field(default_factory=dict)

    def values(self, point: Point) -> tuple[float, ...]:
        """The features of a point, ``[f]``."""
        return tuple(FEATURES[name](point) for name in self.features)

    def covers(self, point: Point) -> bool:
        """Whether every feature of the point is in the range it was trained on."""
        spans = zip(self.lowest, self.values(point), self.highest, strict=True)
        return all(low <= value <= high for low, value, high in spans)


@dataclass(frozen=True)
class Model:
    """What tuning has learnt about a machine.

    Attributes:
        machine: what tells it from others, see :func:`~pccl_jax.dispatch.machine.fingerprint`; a
            simulated one has a name alone.
        simulated: whether it was trained on simulated times.
        made: when and with which versions, for people.
        svms: by collective.
    """

    machine: Mapping[str, Scalar]
    simulated: bool
    made: Mapping[str, Scalar]
    svms: Mapping[str, Svm]

    def to_json(self) -> str:
        """The file's text; :func:`parse` is its inverse."""
        document = {
            "schema": SCHEMA,
            "version": VERSION,
            "machine": dict(self.machine),
            "simulated": self.simulated,
            "made": dict(self.made),
            "collectives": {name: asdict(svm) for name, svm in self.svms.items()},
        }
        return json.dumps(document, indent=1, allow_nan=False) + "\n"

    @property
    def digest(self) -> str:
        """A hash of what decides: two models with equal digests choose alike."""
        decisive = {name: asdict(svm) | {"quality": None} for name, svm in self.svms.items()}
        text = json.dumps(decisive, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def parse(text: str) -> Model:
    """The model in a file's text.

    Raises:
        ConfigurationError: says what was got and what was expected there.
    """
    if len(text) > LARGEST_FILE:
        raise ConfigurationError(f"has {len(text)} characters, expected at most {LARGEST_FILE}")
    try:
        document = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"is not JSON: {error}") from error
    _expect(isinstance(document, dict), "the whole", document, "an object")
    _expect(document.get("schema") == SCHEMA, "schema", document.get("schema"), repr(SCHEMA))
    version = document.get("version")
    _expect(type(version) is int and version == VERSION, "version", version, f"{VERSION}")
    _expect(type(document.get("simulated")) is bool, "simulated", document.get("simulated"), "bool")
    collectives = document.get("collectives")
    known = {c.label for c in Collective}
    right = isinstance(collectives, dict) and set(collectives) <= known
    _expect(right, "collectives", collectives, f"an object with keys among {sorted(known)}")
    return Model(
        machine=_facts(document, "machine"),
        simulated=document["simulated"],
        made=_facts(document, "made"),
        svms={name: _svm(name, entry) for name, entry in document["collectives"].items()},
    )


def _svm(where: str, entry: Any) -> Svm:
    _expect(isinstance(entry, dict), where, entry, "an object")
    read = _Reader(where, entry)
    classes = read.names("classes", MOST_CLASSES, re.compile("[a-z][a-z0-9_]{0,63}"))
    features = read.names("features", len(FEATURES), re.compile("|".join(FEATURES)))
    k, f = len(classes), len(features)
    counts = read.counts("counts", k if k > 1 else 0)
    v = sum(counts)
    _expect(v <= MOST_VECTORS, f"{where}.counts", v, f"at most {MOST_VECTORS} in sum")
    svm = Svm(
        classes=classes,
        features=features,
        lowest=read.numbers("lowest", f),
        highest=read.numbers("highest", f),
        mean=read.numbers("mean", f),
        scale=read.numbers("scale", f),
        gamma=read.number("gamma"),
        vectors=read.matrix("vectors", v, f),
        counts=counts,
        coefficients=read.matrix("coefficients", k - 1, v),
        intercepts=read.numbers("intercepts", k * (k - 1) // 2),
        quality=_facts(entry, "quality"),
    )
    _expect(min(svm.scale) > 0, f"{where}.scale", min(svm.scale), "positive numbers")
    _expect(svm.gamma >= 0, f"{where}.gamma", svm.gamma, "no negative number")
    return svm


class _Reader:
    """Checked access to the fields of one machine; ``where`` is its path, for messages."""

    def __init__(self, where: str, entry: Mapping[str, Any]) -> None:
        self._where, self._entry = where, entry

    def _list(self, name: str, length: int | None) -> tuple[str, list[Any]]:
        value, path = self._entry.get(name), f"{self._where}.{name}"
        right = isinstance(value, list) and (length is None or len(value) == length)
        _expect(right, path, value, "a list" if length is None else f"a list of {length}")
        return path, list(self._entry[name])

    def names(self, name: str, most: int, pattern: re.Pattern[str]) -> tuple[str, ...]:
        path, values = self._list(name, None)
        _expect(0 < len(values) <= most, path, len(values), f"1 to {most} names")
        for value in values:
            right = isinstance(value, str) and pattern.fullmatch(value) is not None
            _expect(right, path, value, f"a name like {pattern.pattern}")
        _expect(len(set(values)) == len(values), path, values, "names that differ")
        return tuple(values)

    def counts(self, name: str, length: int) -> tuple[int, ...]:
        path, values = self._list(name, length)
        for value in values:
            right = type(value) is int and 0 <= value <= MOST_VECTORS
            _expect(right, path, value, f"a whole number up to {MOST_VECTORS}")
        return tuple(values)

    def number(self, name: str) -> float:
        return _finite(f"{self._where}.{name}", self._entry.get(name))

    def numbers(self, name: str, length: int) -> tuple[float, ...]:
        path, values = self._list(name, length)
        return tuple(_finite(path, value) for value in values)

    def matrix(self, name: str, rows: int, columns: int) -> tuple[tuple[float, ...], ...]:
        path, values = self._list(name, rows)
        for row in values:
            right = isinstance(row, list) and len(row) == columns
            _expect(right, path, row, f"lists of {columns} numbers")
        return tuple(tuple(_finite(path, value) for value in row) for row in values)


def _facts(entry: Mapping[str, Any], name: str) -> dict[str, Scalar]:
    """A small flat object of plain values."""
    facts = entry.get(name)
    right = isinstance(facts, dict) and len(facts) <= 32
    _expect(right, name, facts, "an object of at most 32 values")
    for key, value in dict(facts or {}).items():
        plain = value is None or type(value) in (str, int, float, bool)
        _expect(plain and len(str(value)) <= 1000, f"{name}.{key}", value, "a short plain value")
    return dict(facts or {})


def _finite(path: str, value: Any) -> float:
    right = type(value) in (int, float) and abs(value) < 1e30  # False for NaN too
    _expect(right, path, value, "a finite number")
    return float(value)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a number that JSON has")


def _expect(right: bool, path: str, got: Any, expected: str) -> None:
    if not right:
        shown = repr(got) if isinstance(got, str | int | float | None) else type(got).__name__
        if isinstance(got, list):
            shown = f"a list of {len(got)}"
        raise ConfigurationError(f"has {shown[:80]} as {path}, expected {expected}")
