"""The flat collective of the user's MPI library, as a schedule: one phase that we cannot see into.

Restrictions: one rank per process in each group, an element type and an operator that MPI has.
Steps, bytes, cost: the library's own choice among its algorithms.
Source: the MPI standard, MPI_Iallgather, MPI_Ireduce_scatter_block, MPI_Iallreduce.
"""

from __future__ import annotations

from pccl_jax.schedule.ir import Schedule, Vendor
from pccl_jax.types import Collective

MPI = "mpi"


def build_vendor(collective: Collective, nodes: int, local: int) -> Schedule:
    """The schedule of ``collective`` among ``nodes`` ranks; ``local`` is 1."""
    split = collective is not Collective.ALL_REDUCE
    return Schedule(collective, MPI, nodes, local, split, (Vendor(collective),))
