"""MPI communicators whose processes each run a program of their own."""

from __future__ import annotations

import functools
import sys
import threading
from concurrent.futures import Future, TimeoutError
from dataclasses import dataclass
from typing import Any

from pccl_jax.errors import ConfigurationError
from pccl_jax.runtime.agreement import check_alike
from pccl_jax.runtime.joining import check_threads, join, joins_under_way, leave_at_exit
from pccl_jax.runtime.native import extension
from pccl_jax.runtime.places import nodes_of
from pccl_jax.runtime.settings import patience_s
from pccl_jax.runtime.world import World

#: Of the messages that make our communicator out of the user's. They meet no others, whatever
#: their tags: MPI keeps them apart.
_TAG = 7063


@dataclass(frozen=True, eq=False)
class Communicator:
    """A communicator as a collective's axis; equal only to itself.

    Attributes:
        rank: of this process.
        size: number of processes.
        world: what they know of each other; None where there is one.
    """

    rank: int
    size: int
    world: World | None

    @property
    def node_of(self) -> tuple[int, ...]:
        """Number of the node, by rank."""
        return nodes_of(range(self.size) if self.world is None else self.world.host_of)

    def __repr__(self) -> str:
        return f"a communicator of {self.size} process{'' if self.size == 1 else 'es'}"


def joined(comm: Any) -> Communicator:
    """What belongs to the user's communicator. The first call is collective over it.

    Args:
        comm: an intra-communicator of mpi4py.

    Raises:
        TypeError: for anything else.
        ValueError: for MPI_COMM_NULL, or one that has been freed.
        ConfigurationError: where a process has other settings, does not come in time, or MPI is
            not running.
    """
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not isinstance(comm, mpi.Comm):
        raise TypeError(
            f"comm must be an mpi4py communicator, such as MPI.COMM_WORLD, got {comm!r} of type "
            f"{type(comm).__name__}; a mesh axis is passed as axis_name."
        )
    if not mpi.Is_initialized() or mpi.Is_finalized():  # MPI would end the process
        state = "has been finalised" if mpi.Is_initialized() else "is not initialised"
        raise ConfigurationError(
            f"MPI {state}: collectives over a communicator come after MPI.Init_thread(), which "
            "importing mpi4py.MPI calls by default, and before MPI.Finalize()."
        )
    if comm == mpi.COMM_NULL:
        raise ValueError(
            "comm is MPI_COMM_NULL: this process is in no group of the Split or Create that made "
            "it, or it has been freed. Only members may call the collective."
        )
    if comm.Is_inter():
        raise TypeError("comm is an inter-communicator: pass an intra-communicator, from Merge().")
    return _known(comm) or _join_in_time(mpi, comm)


def _known(comm: Any) -> Communicator | None:
    known: Communicator | None = comm.Get_attr(_keyval())
    return known


@functools.cache
def _keyval() -> int:
    """Of the attribute by which communicators know their :class:`Communicator`.

    Handles are used anew after a communicator is freed; attributes go with it.
    """
    comm_type = sys.modules["mpi4py.MPI"].Comm
    return int(comm_type.Create_keyval(delete_fn=_forget))


def _forget(_comm: Any, _key: int, known: Communicator) -> None:
    if known.world is not None:
        extension().leave_world(known.world.number)


_LOCK = threading.Lock()


def _join_in_time(mpi: Any, comm: Any) -> Communicator:
    """Joins, or raises where others do not come in time.

    MPI cannot take back what it waits for, so a thread waits. It goes on after the error, and who
    tries again waits for the same.
    """
    size, handle = comm.Get_size(), int(mpi._handleof(comm))
    if size > 1:
        check_threads(mpi)
    with _LOCK:
        if (known := _known(comm)) is not None:  # another thread was faster
            return known
        if size == 1:
            return _keep(comm, Communicator(0, 1, None))
        future = joins_under_way.get(handle)
        if future is None:
            leave_at_exit()
            future = joins_under_way[handle] = Future()
            threading.Thread(target=_run, args=(future, mpi, comm, handle), daemon=True).start()
    return _wait(future, comm.Get_rank(), size)


def _keep(comm: Any, known: Communicator) -> Communicator:
    """Once for each communicator: MPI would end what an attribute held before."""
    comm.Set_attr(_keyval(), known)
    return known


def _run(future: Future[Communicator], mpi: Any, comm: Any, handle: int) -> None:
    try:
        known = _join(mpi, comm)
        with _LOCK:
            _keep(comm, known)
        end = functools.partial(future.set_result, known)
    except BaseException as e:
        end = functools.partial(future.set_exception, e)
    with _LOCK:  # before anybody learns of it, and tries again
        del joins_under_way[handle]
    end()


def _wait(future: Future[Communicator], rank: int, size: int) -> Communicator:
    warn_s, timeout_s = patience_s()
    who = f"process {rank} of a communicator of {size} processes"
    try:
        return future.result(warn_s)
    except TimeoutError:
        waits = "waits for the others to use it for the first time (until PCCL_TIMEOUT_S)"
        print(f"pccl_jax: {who} {waits}.", file=sys.stderr)
    try:
        return future.result(timeout_s - warn_s)
    except TimeoutError:
        extension().note_failure()
        raise ConfigurationError(
            f"{who} has waited {timeout_s:g} s for the others. The first use of a communicator is "
            "collective over it: all its processes must trace a collective with it, or call "
            "pccl_jax.init(comm=comm), in the same order as other first uses. If they are only "
            "slow, raise PCCL_TIMEOUT_S."
        ) from None


def _join(mpi: Any, comm: Any) -> Communicator:
    # Not Dup(): that is a collective on the user's communicator, where the order of those that
    # are in flight, such as mpi4jax's, is not ours to know.
    group = comm.Get_group()
    ours = comm.Create_group(group, _TAG)
    group.Free()
    ours.Set_errhandler(mpi.ERRORS_RETURN)
    check_alike(ours)
    here = ours.Split_type(mpi.COMM_TYPE_SHARED)
    world = join(mpi, ours, here, ours.Get_rank(), ordered=True)
    here.Free()
    return Communicator(world.process, world.processes, world)
