"""Time to trace and lower a collective: what a program pays for each call before it compiles."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from pccl_jax.cli._bench.cases import Problem
from pccl_jax.cli._bench.contenders import Contender
from pccl_jax.cli._bench.contenders._jitted import Jitted

_LEAST_FUNCTIONS = 21


def lowering_samples(
    problem: Problem, contenders: Sequence[Contender], repeats: int
) -> list[dict[str, Any]]:
    """Milliseconds that each contender takes, next to the first one's.

    Every repetition lowers a function that no cache has seen. ``first_ms`` is the very first,
    which may build and check a schedule; medians are over the others.
    """
    jitted = [c for c in contenders if isinstance(c, Jitted)]
    rounds = max(repeats, _LEAST_FUNCTIONS) + 1
    times = np.array([_round(problem, jitted, number) for number in range(rounds)])
    first, rest = times[0], times[1:]
    return [
        {
            "against": jitted[0].name,
            "contender": jitted[which].name,
            "baseline_ms": round(float(np.median(rest[:, 0])), 3),
            "measured_ms": round(float(np.median(rest[:, which])), 3),
            "extra_ms": round(float(np.median(rest[:, which] - rest[:, 0])), 3),
            "first_ms": round(float(first[which]), 3),
            "functions": len(rest),
        }
        for which in range(1, len(jitted))
    ]


def _round(problem: Problem, jitted: Sequence[Jitted], number: int) -> list[float]:
    """One function of each, every second time in reverse order."""
    if number % 2:
        return [_lower_ms(problem, c) for c in reversed(jitted)][::-1]
    return [_lower_ms(problem, c) for c in jitted]


def _lower_ms(problem: Problem, contender: Jitted) -> float:
    function = contender.jitted(problem)
    start = time.perf_counter()
    function.trace(problem.operand_type).lower()
    return (time.perf_counter() - start) * 1e3
