"""The processes of the program, once :func:`pccl_jax.init` has found them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class World:
    """What start-up has learnt.

    Attributes:
        process: this process's number, as ``jax.process_index()`` counts.
        host_of: number of the host, by process.
        hosts: names of the hosts, by number.
        nics: network interfaces of each host, by number.
        mpi: name of the MPI library, e.g. ``mpich``.
        comm: the mpi4py communicator that belongs to pccl_jax; rank = process.
        device_comm: another, for messages between GPUs; likewise.
    """

    process: int
    host_of: tuple[int, ...]
    hosts: tuple[str, ...]
    nics: tuple[tuple[str, ...], ...]
    mpi: str
    comm: Any
    device_comm: Any

    @property
    def processes(self) -> int:
        """Number of processes."""
        return len(self.host_of)


_JOINED: list[World] = []


def joined_world() -> World | None:
    """The world this process has joined, or None while it is alone."""
    return _JOINED[0] if _JOINED else None


def set_world(world: World) -> None:
    """Remembers the world; once."""
    _JOINED.append(world)
