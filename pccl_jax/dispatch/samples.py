"""Measured times of algorithms: what the dispatcher learns from."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pccl_jax.errors import ConfigurationError
from pccl_jax.types import Collective

#: Of the JSON files that ``pccl-jax bench --json`` writes; the version is raised by one whenever a
#: reader would have to change.
BENCH_SCHEMA, BENCH_VERSION = "pccl_jax.bench", 2

#: Contenders of the benchmark that are XLA's own collectives.
XLA = ("lax", "gloo", "mpi_collectives")


@dataclass(frozen=True)
class Point:
    """What the dispatcher knows of a request, apart from the machine.

    Attributes:
        collective: its label, e.g. ``all_gather``.
        nbytes: bytes of the larger of operand and result on a rank.
        ranks: in the group.
        nodes: that the group spans.
        ranks_per_process: the most ranks of the group that share a process.
        dtype: element type by name.
    """

    collective: str
    nbytes: int
    ranks: int
    nodes: int
    ranks_per_process: int = 1
    dtype: str = "float32"


@dataclass(frozen=True)
class Sample:
    """The time of one algorithm at one point: quartiles in seconds over ``rounds`` rounds."""

    point: Point
    algorithm: str
    median_s: float
    p25_s: float
    p75_s: float
    rounds: int = 1

    @property
    def uncertainty_s(self) -> float:
        """Half the width of the notch of a box plot: medians whose notches overlap may be equal.

        1.57 IQR / sqrt(n). Source: McGill, Tukey and Larsen, "Variations of box plots", The
        American Statistician 32 (1978).
        """
        return 1.57 * (self.p75_s - self.p25_s) / math.sqrt(self.rounds)


#: The samples of each point by algorithm.
Table = Mapping[Point, Mapping[str, Sample]]


def tabulate(samples: Iterable[Sample]) -> dict[Point, dict[str, Sample]]:
    """The samples by point and algorithm; where one was measured twice, the one with more rounds.

    Points at which fewer than two algorithms were measured are left out: there is no choice.
    """
    table: dict[Point, dict[str, Sample]] = {}
    for sample in samples:
        at = table.setdefault(sample.point, {})
        known = at.get(sample.algorithm)
        if known is None or sample.rounds >= known.rounds:
            at[sample.algorithm] = sample
    return {point: at for point, at in table.items() if len(at) > 1}


def read_bench(path: Path) -> tuple[list[Sample], dict[str, Any]]:
    """The samples of a file written by ``pccl-jax bench --json``, and its machine.

    Raises:
        ConfigurationError: where the file cannot be read, or is something else.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} cannot be read as JSON: {error}") from error
    try:
        return samples_of_bench(document), dict(document["machine"])
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{path} is not a file of `pccl-jax bench --json` of this version: "
            f"{type(error).__name__}: {error}; measure again with that command"
        ) from error


def samples_of_bench(document: Mapping[str, Any]) -> list[Sample]:
    """The samples of a benchmark's document, those of our own choice (``pccl``) left out.

    Raises:
        KeyError, TypeError, ValueError: where it is no such document.
    """
    found = (document["schema"], document["version"])
    if found != (BENCH_SCHEMA, BENCH_VERSION):
        raise ValueError(f"it has (schema, version) {found}, not {BENCH_SCHEMA, BENCH_VERSION}")
    samples: dict[tuple[Point, str], Sample] = {}
    for row in document["samples"]:
        point = _point(row)
        if row["against"] in XLA:
            samples[point, "xla"] = _sample(point, "xla", row["baseline"], row["rounds"])
        if row["contender"].startswith("pccl:") and row["algorithm"]:
            name = str(row["algorithm"])
            samples[point, name] = _sample(point, name, row["measured"], row["rounds"])
    return list(samples.values())


def _point(row: Mapping[str, Any]) -> Point:
    collective = Collective[row["collective"].upper()].label
    ranks, in_process = _positive(row["ranks"]), _positive(row["ranks_per_process"])
    nodes = _positive(row["nodes"])
    return Point(collective, _positive(row["bytes"]), ranks, nodes, in_process, str(row["dtype"]))


def _sample(point: Point, name: str, figures: Mapping[str, float], rounds: int) -> Sample:
    p25, median, p75 = (float(figures[f"{key}_us"]) * 1e-6 for key in ("p25", "median", "p75"))
    if not 0 < p25 <= median <= p75 < math.inf:
        raise ValueError(f"quartiles of {name} are {p25}, {median}, {p75} seconds")
    return Sample(point, name, median, p25, p75, _positive(rounds))


def _positive(value: object) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"got {value!r} where a whole number from 1 up is expected")
    return value


def collectives_of(table: Table) -> Sequence[str]:
    """The collectives of a table, in the order of :class:`~pccl_jax.types.Collective`."""
    present = {point.collective for point in table}
    return [c.label for c in Collective if c.label in present]
