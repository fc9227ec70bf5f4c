"""What a comparison across processes comes to: speed-up over Gloo, ratio to raw MPI.

Gloo stalls on some medium messages, e.g. an all-gather of 256 KiB: it takes longer than for
larger ones, most likely for want of a TCP acknowledgement. Such cells are shown, but in no mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import geometric_mean
from typing import Any

from pccl_jax.cli._bench.grid import grouped

Sample = dict[str, Any]

#: A message that takes this much longer than one at least four times as large has stalled.
_STALL_FACTOR = 1.2
_STALL_SIZE_FACTOR = 4
_GLOO_RANGE = (4 << 10, 64 << 20)
_GLOO_LARGE = 4 << 20
_MPI_FROM = 1 << 20


def mark_stalls(samples: Sequence[Sample]) -> list[Sample]:
    """The samples, each with ``stalled``: whether Gloo took longer than for a larger message."""
    return [sample | {"stalled": _stalled(sample, samples)} for sample in samples]


def _stalled(sample: Sample, samples: Sequence[Sample]) -> bool:
    larger = [
        float(other["baseline"]["median_us"])
        for other in samples
        if all(other[key] == sample[key] for key in ("collective", "dtype", "ranks"))
        and other["nbytes"] >= _STALL_SIZE_FACTOR * sample["nbytes"]
    ]
    limit = _STALL_FACTOR * min(larger, default=math.inf)
    return bool(sample["against"] == "gloo" and sample["baseline"]["median_us"] > limit)


def peer_summaries(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """For each contender of ours, dtype and number of ranks, where Gloo is the baseline."""
    ours = [s for s in samples if s["against"] == "gloo" and s["contender"].startswith("pccl")]
    return [
        {"contender": contender, "dtype": dtype, "ranks": ranks}
        | _against_gloo(group)
        | {"mpi": _worst(group, "mpi", _MPI_FROM), "mpi4jax": _worst(group, "mpi4jax", 0)}
        for (contender, dtype, ranks), group in grouped(ours, "contender", "dtype", "ranks").items()
    ]


def _against_gloo(group: Sequence[Sample]) -> dict[str, Any]:
    low, high = _GLOO_RANGE
    cells = [s for s in group if not s["stalled"] and low <= s["nbytes"] <= high]
    large = [s for s in cells if s["nbytes"] >= _GLOO_LARGE]
    return {
        "cells": len(cells),
        "stalled": [_cell(s, s["ratio"]) for s in group if s["stalled"]],
        "speed_up": round(1 / geometric_mean([s["ratio"] for s in cells]), 3) if cells else None,
        "least_speed_up": _least(cells),
        "least_large_speed_up": _least(large),
    }


def _least(cells: Sequence[Sample]) -> dict[str, Any] | None:
    if not cells:
        return None
    slowest = max(cells, key=lambda sample: float(sample["ratio"]))
    return _cell(slowest, round(1 / slowest["ratio"], 3))


def _worst(group: Sequence[Sample], peer: str, from_nbytes: int) -> dict[str, Any] | None:
    """The cell in which ours takes longest in terms of the peer's time."""
    cells = [s for s in group if s["nbytes"] >= from_nbytes and peer in s["ratios"]]
    if not cells:
        return None
    worst = max(cells, key=lambda sample: float(sample["ratios"][peer]))
    mean = round(geometric_mean([s["ratios"][peer] for s in cells]), 3)
    return _cell(worst, worst["ratios"][peer]) | {"mean": mean, "cells": len(cells)}


def _cell(sample: Sample, value: float) -> dict[str, Any]:
    return {"value": value, "collective": sample["collective"], "nbytes": sample["nbytes"]}
