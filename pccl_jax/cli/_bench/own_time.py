"""What a call takes by itself, without XLA's dispatch of the program around it.

A program with a loop over K collectives, each on the result of the one before, less a program
with one, divided by K - 1; against the same loop of raw MPI calls. All-gathers alternate with
reduce-scatters, or the vector would grow: the time of a call is the mean of both. A loop, as in
training, where layers are scanned: K call sites in a row would each find the caches cold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import pccl_jax
from pccl_jax.cli._bench.cases import AXIS, Problem
from pccl_jax.cli._bench.check import mismatch
from pccl_jax.cli._bench.contenders import Launch
from pccl_jax.cli._bench.contenders.mpi import SUMS, collective, one_rank_each
from pccl_jax.cli._bench.job import Job
from pccl_jax.cli._bench.measure import measure
from pccl_jax.cli._bench.settings import Settings

#: Calls of one collective in a loop.
CALLS = 50
_CHECKED = 2


def own_time_samples(
    problem: Problem, settings: Settings, job: Job
) -> tuple[list[dict[str, Any]], list[str]]:
    """The own time of pccl_jax next to raw MPI's, and what was wrong with the results."""
    case = problem.case
    if not _served(problem):
        return [], []
    operand = problem.operand
    faults = job.faults(
        mismatch(_mpi(problem, _CHECKED)(operand), _pccl(problem, _CHECKED)(operand))
    )
    if faults:
        return [], faults
    zeros = operand * 0  # sums stay what they are, however long the loop
    loops = [make(problem, length) for make in (_mpi, _pccl) for length in (1, CALLS)]
    times = measure(
        [_on(loop, zeros) for loop in loops],
        job,
        repeats=settings.repeats,
        min_time_s=settings.min_time_s,
        max_time_s=settings.max_time_s,
    )
    calls = 2 if case.collective == "all_gather" else 1
    one, many, ours_one, ours_many = (float(np.median(row)) * 1e6 for row in times)
    mpi, ours = ((long - short) / (CALLS - 1) / calls
                 for short, long in ((one, many), (ours_one, ours_many)))  # fmt: skip
    figures = {"mpi_us": mpi, "own_us": ours, "launch_us": ours_one}
    rounded = {name: round(us, 3) for name, us in figures.items()}
    return [{**rounded, "ratio": round(ours / mpi, 4), "rounds": times.shape[1]}], []


def _served(problem: Problem) -> bool:
    """Whether MPI has it: the reductions are the harder part of a loop."""
    return one_rank_each(problem.case) and problem.case.dtype in SUMS


def _on(loop: Callable[[Any], Any], operand: Any) -> Launch:
    return lambda: loop(operand)


def _pccl(problem: Problem, length: int) -> Callable[[Any], Any]:
    def call(_: Any, x: Any) -> Any:
        if problem.case.collective == "all_reduce":
            return pccl_jax.psum(x, AXIS)
        gathered = pccl_jax.all_gather(x, AXIS, tiled=True)
        return pccl_jax.psum_scatter(gathered, AXIS, tiled=True)

    def body(x: Any) -> Any:
        return jax.lax.fori_loop(0, length, call, x)

    # Unchecked, for the result of an all-reduce does not vary, as what it came from may.
    mapped = jax.shard_map(
        body,
        mesh=problem.mesh,
        in_specs=problem.spec,
        out_specs=problem.out_spec,
        check_vma=False,
    )
    return jax.jit(mapped)


def _mpi(problem: Problem, length: int) -> Callable[[Any], list[np.ndarray]]:
    """Into arrays allocated once, as XLA has them inside a program."""
    case = problem.case
    first = np.asarray(problem.operand.addressable_shards[0].data)
    kept = [np.zeros_like(first) for _ in range(2)]

    def reduce_loop(operand: Any) -> list[np.ndarray]:
        x = np.asarray(operand.addressable_shards[0].data)
        for number in range(length):
            all_reduce(x, kept[number % 2])
            x = kept[number % 2]
        return [x]

    def gather_loop(operand: Any) -> list[np.ndarray]:
        x = np.asarray(operand.addressable_shards[0].data)
        for _ in range(length):
            gather(x, gathered)
            scatter(gathered, kept[0])
            x = kept[0]
        return [x]

    if case.collective == "all_reduce":
        all_reduce, _ = collective("all_reduce", case.ranks)
        return reduce_loop
    gathered = np.zeros(first.size * case.ranks, first.dtype)
    gather, _ = collective("all_gather", case.ranks)
    scatter, _ = collective("reduce_scatter", case.ranks)
    return gather_loop
