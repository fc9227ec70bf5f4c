"""What a call takes by itself, without XLA's dispatch of the program around it.

A program with a chain of K collectives, each on the result of the one before, less a program
with one, divided by K - 1; against the same chain of raw MPI calls. A chain of all-gathers would
grow: it alternates all-gather and reduce-scatter, and the time of a call is the mean of both.
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

#: Calls of one collective in a chain.
CHAIN = 50
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
    zeros = operand * 0  # sums stay what they are, however long the chain
    chains = [make(problem, length) for make in (_mpi, _pccl) for length in (1, CHAIN)]
    times = measure(
        [_on(chain, zeros) for chain in chains],
        job,
        repeats=settings.repeats,
        min_time_s=settings.min_time_s,
        max_time_s=settings.max_time_s,
    )
    calls = 2 if case.collective == "all_gather" else 1
    one, many, ours_one, ours_many = (float(np.median(row)) * 1e6 for row in times)
    mpi, ours = ((long - short) / (CHAIN - 1) / calls
                 for short, long in ((one, many), (ours_one, ours_many)))  # fmt: skip
    figures = {"mpi_us": mpi, "own_us": ours, "launch_us": ours_one}
    rounded = {name: round(us, 3) for name, us in figures.items()}
    return [{**rounded, "ratio": round(ours / mpi, 4), "rounds": times.shape[1]}], []


def _served(problem: Problem) -> bool:
    """Whether MPI has it: the reductions are the harder part of a chain."""
    return one_rank_each(problem.case) and problem.case.dtype in SUMS


def _on(chain: Callable[[Any], Any], operand: Any) -> Launch:
    return lambda: chain(operand)


def _pccl(problem: Problem, length: int) -> Callable[[Any], Any]:
    def body(x: Any) -> Any:
        for _ in range(length):
            if problem.case.collective == "all_reduce":
                x = pccl_jax.psum(x, AXIS)
            else:
                gathered = pccl_jax.all_gather(x, AXIS, tiled=True)
                x = pccl_jax.psum_scatter(gathered, AXIS, tiled=True)
        return x

    # What went through a reduce-scatter is typed as varying, that of an all-reduce is not.
    out = problem.out_spec
    mapped = jax.shard_map(body, mesh=problem.mesh, in_specs=problem.spec, out_specs=out)
    return jax.jit(mapped)


def _mpi(problem: Problem, length: int) -> Callable[[Any], list[np.ndarray]]:
    """Into arrays allocated once, as XLA has them inside a program."""
    case = problem.case
    first = np.asarray(problem.operand.addressable_shards[0].data)
    kept = [np.zeros_like(first) for _ in range(2)]

    def reduce_chain(operand: Any) -> list[np.ndarray]:
        x = np.asarray(operand.addressable_shards[0].data)
        for number in range(length):
            all_reduce(x, kept[number % 2])
            x = kept[number % 2]
        return [x]

    def gather_chain(operand: Any) -> list[np.ndarray]:
        x = np.asarray(operand.addressable_shards[0].data)
        for _ in range(length):
            gather(x, gathered)
            scatter(gathered, kept[0])
            x = kept[0]
        return [x]

    if case.collective == "all_reduce":
        all_reduce, _ = collective("all_reduce", case.ranks)
        return reduce_chain
    gathered = np.zeros(first.size * case.ranks, first.dtype)
    gather, _ = collective("all_gather", case.ranks)
    scatter, _ = collective("reduce_scatter", case.ranks)
    return gather_chain
