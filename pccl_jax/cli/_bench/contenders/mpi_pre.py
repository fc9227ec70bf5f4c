"""Raw MPI into an output that is allocated once: what MPI alone takes, without page faults."""

from __future__ import annotations

from collections.abc import Sequence

from pccl_jax.cli._bench.contenders.mpi import Mpi


def contenders(algorithms: Sequence[str]) -> list[Mpi]:
    """The one contender ``mpi-pre``."""
    return [Mpi("mpi-pre", fresh=False)]
