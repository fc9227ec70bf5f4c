"""Processes that have joined each other: those of the program, or those of a communicator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class World:
    """What start-up has learnt.

    Attributes:
        process: this process's number, as ``jax.process_index()`` counts; of a communicator its
            rank.
        host_of: number of the host, by process.
        hosts: names of the hosts, by number.
        nics: network interfaces of each host, by number.
        mpi: name of the MPI library, e.g. ``mpich``.
        comm: the mpi4py communicator that belongs to pccl_jax.
        device_comm: another, for messages between GPUs; rank = process. None for a communicator's.
        number: by which the extension knows it; 0 for the program's.
    """

    process: int
    host_of: tuple[int, ...]
    hosts: tuple[str, ...]
    nics: tuple[tuple[str, ...], ...]
    mpi: str
    comm: Any
    device_comm: Any
    number: int = 0

    @property
    def processes(self) -> int:
        """Number of processes."""
        return len(self.host_of)


_JOINED: list[World] = []


def joined_world() -> World | None:
    """The program's world, or None while :func:`pccl_jax.init` has not joined it."""
    return _JOINED[0] if _JOINED else None


def set_world(world: World) -> None:
    """Remembers the world; once."""
    _JOINED.append(world)
