"""Raw MPI: its blocking collective on numpy arrays, into an output that is allocated each time.

So has XLA to do it: the result of a program is a fresh array. ``mpi-pre`` is without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pccl_jax.cli._bench.cases import Case, Problem
from pccl_jax.runtime.world import joined_world

#: What MPI can add up, and mpi4jax can send.
SUMS = ("float32", "float64", "int8", "int32", "int64")


def contenders(algorithms: Sequence[str]) -> list[Mpi]:
    """The one contender ``mpi``; which algorithms it has is the MPI library's affair."""
    return [Mpi("mpi", fresh=True)]


@dataclass(frozen=True)
class Mpi:
    """MPI through mpi4py; ``fresh`` says whether a launch allocates its output."""

    name: str
    fresh: bool

    def serves(self, case: Case) -> bool:
        """One rank in each process; what it cannot add up it can gather as bytes."""
        return one_rank_each(case) and (case.collective == "all_gather" or case.dtype in SUMS)

    def prepare(self, problem: Problem) -> Callable[[], list[np.ndarray]]:
        """A call on the memory of the operand itself."""
        operand = np.asarray(problem.operand.addressable_shards[0].data)
        call, count = collective(problem.case.collective, problem.case.ranks)
        elements, dtype = count(operand.size), operand.dtype
        kept = np.zeros(elements, dtype)
        as_sent = as_numbers(operand)

        def launch() -> list[np.ndarray]:
            output = np.empty(elements, dtype) if self.fresh else kept
            call(as_sent, as_numbers(output))
            return [output]

        return launch


def one_rank_each(case: Case) -> bool:
    """Whether the case is one group, of all processes, with a rank in each."""
    world = joined_world()
    return world is not None and world.processes == case.ranks


def collective(label: str, ranks: int) -> tuple[Callable[..., None], Callable[[int], int]]:
    """MPI's function, and the elements of its output for those of its input."""
    world = joined_world()
    assert world is not None
    comm: Any = world.comm
    if label == "all_gather":
        return comm.Allgather, lambda elements: elements * ranks
    if label == "reduce_scatter":
        return comm.Reduce_scatter_block, lambda elements: elements // ranks
    return comm.Allreduce, lambda elements: elements


def as_numbers(array: np.ndarray) -> np.ndarray:
    """The same memory as a type that MPI knows: bytes in place of bfloat16 and float16."""
    return array if array.dtype.name in SUMS else array.view(np.uint8)
