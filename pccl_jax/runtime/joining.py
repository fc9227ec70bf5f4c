"""Processes get to know each other: hosts, shared memory, the extension's connection."""

from __future__ import annotations

import atexit
import functools
import os
import secrets
import socket
import sys
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from pccl_jax import dispatch
from pccl_jax.errors import ConfigurationError
from pccl_jax.runtime.launcher import network_cards
from pccl_jax.runtime.mpi_handles import op_handles, type_handles
from pccl_jax.runtime.native import extension
from pccl_jax.runtime.world import World

#: Shared memory of each process. Larger pieces mean fewer waits for processes that share a core;
#: measured with 4 on 2 cores, 16 MiB made a 64 MiB all-gather twice as slow.
_SHARED_MIB = 32

#: Settings that change what is sent, or how it is cut.
_ALIKE = (
    *("PCCL_ALGORITHM", "PCCL_CHECK", "PCCL_CMA", "PCCL_GPU_TRANSPORT"),
    *("PCCL_RANKS_PER_NODE", "PCCL_SHM_MIB"),
)


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


def check_alike(comm: Any) -> None:
    """Everything that decides which messages are sent has to be equal in all processes."""
    for name in _ALIKE:
        values = comm.allgather(os.environ.get(name))
        if len(set(values)) > 1:
            told = ", ".join(f"{value!r} in process {rank}" for rank, value in enumerate(values))
            raise ConfigurationError(f"{name} must be equal in all processes, but it is {told}")
    _check_choices(comm)


def _check_choices(comm: Any) -> None:
    """Who decides by other figures may choose another algorithm, and send other messages."""
    policies = comm.allgather((_attempt(comm, dispatch.describe), socket.gethostname()))
    said = dict.fromkeys(policy for policy, _ in policies)
    if len(said) == 1:
        return
    told = []
    for policy in said:
        ranks = [f"process {r} ({host})" for r, (p, host) in enumerate(policies) if p == policy]
        more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
        told.append(f"{policy} in {', '.join(ranks[:8])}{more}")
    raise ConfigurationError(
        f"the processes decide by different figures: {'; '.join(told)}. Give all of them the "
        "same model and machine (PCCL_MODEL=FILE, PCCL_MACHINE=FILE), or none (PCCL_MODEL=none)."
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
    segments = _share_memory(comm, here, process)
    number, name = _attempt(
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


def _share_memory(comm: Any, here: Any, process: int) -> dict[int, str]:
    """Creates this process's segment; returns the names of all segments of the host.

    The names vanish as soon as everybody has mapped the segments, so nothing is left behind.
    """
    text = os.environ.get("PCCL_SHM_MIB", str(_SHARED_MIB))
    if not text.isdigit() or int(text) < 1:
        raise ConfigurationError(f"PCCL_SHM_MIB={text!r} is not a positive number of MiB")
    if here.Get_size() == 1:
        all_or_none(comm, None)  # as the other hosts do
        return {}
    name = f"/pccl_jax-{os.getpid()}-{secrets.token_hex(8)}"
    mib, wrong = int(text), _create(name, int(text))
    # Containers often have 64 MiB of shared memory in all: make do with less, all alike.
    while mib > 1 and any(here.allgather(wrong)):
        mib //= 2
        wrong = _create(name, mib)
    all_or_none(comm, wrong)
    return dict(here.allgather((process, name)))


def _create(name: str, mib: int) -> str | None:
    """Creates the segment in place of an earlier one; returns what is wrong, if anything."""
    native = extension()
    native.unlink_segment(name)
    try:
        native.create_segment(name, mib << 20)
    except RuntimeError as e:
        return str(e)
    return None


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


def _attempt(comm: Any, action: Callable[[], Any]) -> Any:
    """Runs an action that may fail in some of the processes; then it fails in all."""
    result, wrong = None, None
    try:
        result = action()
    except Exception as e:  # whatever it is, the others must not wait for us
        wrong = str(e)
    all_or_none(comm, wrong)
    return result


def all_or_none(comm: Any, wrong: str | None) -> None:
    """Raises in every process where something is wrong in any."""
    faults = [(rank, text) for rank, text in enumerate(comm.allgather(wrong)) if text]
    if faults:
        raise ConfigurationError("; ".join(f"process {rank}: {text}" for rank, text in faults))
