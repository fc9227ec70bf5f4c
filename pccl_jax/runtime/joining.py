"""Processes get to know each other: hosts, shared memory, the extension's connection."""

from __future__ import annotations

import atexit
import functools
import socket
import sys
from concurrent.futures import Future, wait
from typing import Any

from pccl_jax.errors import ConfigurationError
from pccl_jax.runtime.agreement import attempt
from pccl_jax.runtime.launcher import network_cards
from pccl_jax.runtime.memory import keep_freed_memory, share_memory
from pccl_jax.runtime.mpi_handles import op_handles, type_handles
from pccl_jax.runtime.native import extension
from pccl_jax.runtime.world import World


def library_name(mpi: Any) -> str:
    """The MPI library and its version."""
    return str(mpi.Get_library_version().splitlines()[0].strip("\0 "))


def check_threads(mpi: Any) -> None:
    """Raises ConfigurationError unless any thread may call MPI."""
    if mpi.Query_thread() < mpi.THREAD_MULTIPLE:
        raise ConfigurationError(
            f"{library_name(mpi)} was initialised without MPI_THREAD_MULTIPLE, which pccl_jax "
            "needs: do not set mpi4py.rc.thread_level, or set it to 'multiple'."
        )


def join(mpi: Any, comm: Any, here: Any, process: int, *, ordered: bool) -> World:
    """Exchanges what the processes must know of each other and hands it to the extension.

    Collective over ``comm``. When the program ends, the others are told how.

    Args:
        mpi: the module ``mpi4py.MPI``.
        comm: a communicator that belongs to pccl_jax, which reports errors as exceptions.
        here: those of its processes that share this host.
        process: this process's number.
        ordered: whether collectives are matched by their order, else by their call site.

    Raises:
        ConfigurationError: in every process, where one of them cannot join.
    """
    leader = here.bcast(comm.Get_rank())
    mine = (process, comm.Get_rank(), leader, socket.gethostname(), network_cards())
    rows = sorted(comm.allgather(mine))
    leaders = list(dict.fromkeys(row[2] for row in rows))
    host_of = [leaders.index(row[2]) for row in rows]
    names = {leaders.index(row[2]): row[3] for row in rows}
    cards = {leaders.index(row[2]): row[4] for row in rows}
    native = extension()
    attempt(comm, keep_freed_memory)
    segments = share_memory(comm, here, process)
    number, name = attempt(
        comm,
        lambda: native.join_world(
            ordered=ordered,
            process=process,
            host_of=host_of,
            mpi_rank=[row[1] for row in rows],
            mpi4py_file=mpi.__file__,
            any_source=mpi.ANY_SOURCE,
            comm=mpi._handleof(comm),
            comm_self=mpi._handleof(mpi.COMM_SELF),
            largest_tag=min(comm.Get_attr(mpi.TAG_UB) or 32767, 2**31 - 1),
            segments=segments,
            types=type_handles(mpi),
            ops=op_handles(mpi),
        ),
    )
    for segment in segments.values():
        native.unlink_segment(segment)
    numbers = range(len(leaders))
    hosts, nics = tuple(names[i] for i in numbers), tuple(cards[i] for i in numbers)
    leave_at_exit()
    device_comm = None if ordered else comm.Split(key=process)
    return World(process, tuple(host_of), hosts, nics, name, comm, device_comm, number)


#: What threads do that wait for others in MPI, by the handle of the communicator.
joins_under_way: dict[int, Future[Any]] = {}


@functools.cache
def leave_at_exit() -> None:
    """Has the extension told that the program ends, before anything waits for other processes."""
    atexit.register(_leave)


def _leave() -> None:
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    under_way = tuple(joins_under_way.values())
    if under_way:
        extension().note_failure()
    extension().leave("" if error is None else f"{type(error).__name__}: {error}")
    if under_way:  # MPI must not end while a thread is in it; it is leave() that ends the wait
        sys.stdout.flush()
        wait(under_way)
