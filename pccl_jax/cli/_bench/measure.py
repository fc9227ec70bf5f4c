"""The measurement loop, and what is kept of its times."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from pccl_jax.cli._bench.cases import Case
from pccl_jax.cli._bench.contenders import Launch
from pccl_jax.cli._bench.job import Job

_WARM_UP_ROUNDS = 3
_FEWEST_ROUNDS = 4


def measure(
    launches: Sequence[Launch],
    job: Job,
    *,
    repeats: int,
    min_time_s: float,
    max_time_s: float = math.inf,
) -> np.ndarray:
    """Seconds of each launch in each round, ``[launch, round]``.

    In a round every launch runs once, one after the other; every second round is in reverse
    order. Each launch is waited for: several in flight hang in jax 0.10, and would overlap.

    Args:
        launches: prepared contenders; the first is the one compared with.
        job: a launch begins after its barrier and takes as long as in its slowest process.
        repeats: least number of rounds.
        min_time_s: rounds go on for about as long.
        max_time_s: and no longer, except that there are always a few.
    """
    warm_up = [sum(_round(launches, job, number)) for number in range(_WARM_UP_ROUNDS)]
    rounds = int(job.largest([_rounds(min(warm_up), repeats, min_time_s, max_time_s)])[0])
    collecting = gc.isenabled()
    gc.disable()
    try:
        times = np.array([_round(launches, job, number) for number in range(rounds)])
    finally:
        if collecting:
            gc.enable()
    return np.array(job.largest(times.reshape(-1).tolist())).reshape(times.shape).T


def _rounds(round_s: float, repeats: int, min_time_s: float, max_time_s: float) -> int:
    """How many rounds, an even number, when one takes ``round_s``."""
    wanted = max(repeats, math.ceil(min_time_s / round_s))
    if wanted * round_s > max_time_s:
        wanted = min(wanted, max(_FEWEST_ROUNDS, int(max_time_s / round_s)))
    return wanted + wanted % 2


def _round(launches: Sequence[Launch], job: Job, number: int) -> list[float]:
    times = [0.0] * len(launches)
    order = range(len(launches))
    for which in reversed(order) if number % 2 else order:
        times[which] = _seconds(launches[which], job)
    return times


def _seconds(launch: Launch, job: Job) -> float:
    job.barrier()
    start = time.perf_counter()
    result = jax.block_until_ready(launch())
    elapsed = time.perf_counter() - start
    del result  # Here, so that freeing it is not timed and no two results are alive at once.
    return elapsed


def summary(case: Case, seconds: np.ndarray) -> dict[str, float]:
    """The figures of one contender."""
    percents = {"min": 0, "p25": 25, "median": 50, "p75": 75, "p95": 95}
    times = {
        f"{name}_us": round(float(np.percentile(seconds, percent)) * 1e6, 3)
        for name, percent in percents.items()
    }
    median = float(np.median(seconds))
    bandwidths = {
        "algbw_GBps": round(case.algbw_GBps(median), 4),
        "busbw_GBps": round(case.busbw_GBps(median), 4),
    }
    return times | bandwidths


def paired(baseline: np.ndarray, seconds: np.ndarray) -> dict[str, Any]:
    """The median of the ratios of each round, and their quartiles."""
    ratios = seconds / baseline
    return {
        "ratio": round(float(np.median(ratios)), 4),
        "ratio_quartiles": [round(float(q), 4) for q in np.percentile(ratios, (25, 75))],
        "rounds": len(ratios),
    }
