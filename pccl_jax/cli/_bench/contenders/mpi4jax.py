"""mpi4jax: MPI calls in a jitted program of each process. It has no reduce-scatter."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from pccl_jax.cli._bench.cases import Case, Problem
from pccl_jax.cli._bench.contenders.mpi import SUMS, one_rank_each
from pccl_jax.runtime.world import joined_world

_COLLECTIVES = ("all_gather", "all_reduce")


def contenders(algorithms: Sequence[str]) -> list[Mpi4jax]:
    """The one contender ``mpi4jax``, where it is installed."""
    if importlib.util.find_spec("mpi4jax") is None:
        raise ImportError("mpi4jax is not installed")
    return [Mpi4jax()]


@dataclass(frozen=True)
class Mpi4jax:
    """A jitted function of this process's operand alone."""

    name: str = "mpi4jax"

    def serves(self, case: Case) -> bool:
        """One rank in each process; bfloat16 and float16 are refused."""
        return one_rank_each(case) and case.collective in _COLLECTIVES and case.dtype in SUMS

    def prepare(self, problem: Problem) -> Callable[[], Any]:
        """A call of the jitted function."""
        world = joined_world()
        assert world is not None
        comm = world.comm
        # Only here: to import it starts MPI, which pccl_jax.init() prepares first.
        mpi4jax = importlib.import_module("mpi4jax")
        operand = problem.operand.addressable_shards[0].data
        if problem.case.collective == "all_gather":
            function = jax.jit(lambda x: mpi4jax.allgather(x, comm=comm).reshape(-1))
        else:
            total = importlib.import_module(type(comm).__module__).SUM
            function = jax.jit(lambda x: mpi4jax.allreduce(x, op=total, comm=comm))
        return lambda: function(operand)
