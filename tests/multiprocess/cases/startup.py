"""pccl_jax.init() in every state a program may be in when it calls it."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import time
from pathlib import Path

import jax
import numpy as np
from _case import RANK, assert_rows, per_rank, report, spread, step
from jax.sharding import Mesh

import pccl_jax
from pccl_jax.dispatch.machine import fingerprint, model_file
from pccl_jax.dispatch.model import Model, Svm

SIZE_VARIABLE = "PMI_SIZE" if "PMI_SIZE" in os.environ else "OMPI_COMM_WORLD_SIZE"
SIZE = int(os.environ[SIZE_VARIABLE])


def add_up(name: str = "add_up") -> jax.Array:
    mesh = Mesh(np.array(jax.devices()), ("x",))
    rows = np.arange(mesh.size * 3, dtype=np.float32).reshape(mesh.size, 3)

    def program(x):
        return pccl_jax.psum(x, "x")

    program.__name__ = name
    result = per_rank(program, mesh)(spread(rows, mesh))
    assert_rows(result, lambda _: rows.sum(0), name)
    return result


def shared_memory() -> list[str]:
    return [path.name for path in Path("/dev/shm").glob(f"*pccl_jax-{os.getpid()}-*")]


def plain() -> None:
    """Twice is as good as once, and no name of shared memory stays."""
    pccl_jax.init()
    first = pccl_jax.topology()
    pccl_jax.init()
    assert pccl_jax.topology() == first
    assert first.processes == SIZE == jax.process_count()
    assert first.nodes == 1
    add_up()
    assert shared_memory() == []


def distributed_first() -> None:
    """The program has called jax.distributed.initialize, with numbers of its own."""
    from mpi4py import MPI

    from pccl_jax.runtime import startup

    address = MPI.COMM_WORLD.bcast(
        startup._coordinator(True) if RANK == SIZE - 1 else None, SIZE - 1
    )
    jax.distributed.initialize(address, SIZE, SIZE - 1 - RANK)
    pccl_jax.init()
    assert jax.process_index() == SIZE - 1 - RANK
    add_up()


def no_mpi4py() -> None:
    sys.modules["mpi4py"] = None  # type: ignore[assignment]
    try:
        pccl_jax.init()
    finally:
        del sys.modules["mpi4py"]


def other_launcher() -> None:
    from mpi4py import MPI  # which reads the variable itself

    assert MPI.COMM_WORLD.Get_size() == SIZE
    os.environ[SIZE_VARIABLE] = "7"
    try:
        pccl_jax.init()
    finally:
        os.environ[SIZE_VARIABLE] = str(SIZE)


def srun_alone() -> None:
    from mpi4py import MPI  # which reads the variable itself

    assert MPI.COMM_WORLD.Get_size() == SIZE
    del os.environ[SIZE_VARIABLE]
    os.environ["SLURM_STEP_NUM_TASKS"] = "7"
    try:
        pccl_jax.init()
    finally:
        del os.environ["SLURM_STEP_NUM_TASKS"]
        os.environ[SIZE_VARIABLE] = str(SIZE)


def different_settings() -> None:
    os.environ["PCCL_CHECK"] = str(RANK % 2)
    try:
        pccl_jax.init()
    finally:
        del os.environ["PCCL_CHECK"]


def wrong_memory() -> None:
    if RANK == 1:
        os.environ["PCCL_KEEP_MIB"] = "much"
    try:
        pccl_jax.init()
    finally:
        os.environ.pop("PCCL_KEEP_MIB", None)


def write_model(path: Path, name: str) -> None:
    """One class, whatever the request."""
    svm = Svm((name,), ("log2_bytes",), (0.0,), (40.0,), (0.0,), (1.0,), 0.0, (), (), (), ())
    path.write_text(Model(dict(fingerprint()), False, {}, {"all_reduce": svm}).to_json())


def with_model(path: Path) -> None:
    os.environ["PCCL_MODEL"] = str(path)
    try:
        pccl_jax.init()
    finally:
        del os.environ["PCCL_MODEL"]


def different_models() -> None:
    path = Path(os.environ["PCCL_TEST_FOLDER"]) / f"model{RANK}.json"
    write_model(path, "ring" if RANK else "rec")
    with_model(path)


def wrong_model_in_one() -> None:
    path = Path(os.environ["PCCL_TEST_FOLDER"]) / f"wrong{RANK}.json"
    write_model(path, "ring")
    if RANK == 1:
        path.write_text("{")
    with_model(path)


def different_machines() -> None:
    os.environ["PCCL_MACHINE"] = "frontier" if RANK else "perlmutter"
    try:
        pccl_jax.init()
    finally:
        del os.environ["PCCL_MACHINE"]


def same_model() -> None:
    """In files of their own, for all programs of this machine; and it is used."""
    write_model(model_file(), "ring")
    pccl_jax.init()
    add_up()
    (choice,) = pccl_jax.choices()
    assert choice.algorithm == "ring", choice
    assert choice.reason.startswith("learned: "), choice


def device_first() -> None:
    jax.devices()
    pccl_jax.init()


def low_threads() -> None:
    import mpi4py

    mpi4py.rc.thread_level = "serialized"
    pccl_jax.init()


def unused() -> None:
    pccl_jax.init()


def kept() -> None:
    """Whether memory that was freed comes back with its pages."""
    pccl_jax.init()
    libc = ctypes.CDLL(None)
    libc.malloc.restype, nbytes = ctypes.c_void_p, 20 << 20

    def page_faults() -> int:
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        arrays = [ctypes.c_void_p(libc.malloc(ctypes.c_size_t(nbytes))) for _ in range(3)]
        for array in arrays:
            ctypes.memset(array, 1, nbytes)
        for array in arrays:
            libc.free(array)
        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

    fresh = page_faults()
    faults = page_faults()
    wanted = os.environ.get("PCCL_KEEP_MIB") != "0"
    assert (faults < fresh / 2) == wanted, f"{faults} page faults, at first {fresh}"


def pending() -> None:
    """The program ends without waiting for what it has dispatched."""
    pccl_jax.init()
    add_up()
    for _ in range(3):
        add_up("pending")


def raises() -> None:
    """One process fails; the others are told in their next collective."""
    pccl_jax.init()
    add_up()
    if RANK == 1:
        report("raises", "ok")
        raise LookupError("no such file")
    begin = time.monotonic()
    try:
        jax.block_until_ready(add_up("second"))
    except Exception as e:
        report("raises", f"{type(e).__name__}: {e}", time.monotonic() - begin)
        raise


if __name__ == "__main__":
    for name in sys.argv[1:]:
        if name == "raises":
            raises()
        with step(name):
            globals()[name]()
