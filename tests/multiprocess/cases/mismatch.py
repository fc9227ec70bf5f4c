"""One process does something else than the others, again and again; all of them live on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from _case import RANK, per_rank, spread, step
from jax.sharding import Mesh

import pccl_jax


def call(
    name: str, collective: str = "psum", count: int = 5, dtype: Any = np.float32
) -> Callable[[], jax.Array]:
    """A collective over all devices in a program with this name, checked; returned for reuse."""
    mesh = Mesh(np.array(jax.devices()), ("x",))
    n = len(jax.devices())
    rows = np.ones((n, count), dtype)

    def program(x):
        return getattr(pccl_jax, collective)(x, "x")

    program.__name__ = name
    function, x = per_rank(program, mesh), spread(rows, mesh)
    result = jax.block_until_ready(function(x))
    right = n if collective == "psum" else 1
    for shard in result.addressable_shards:
        assert (np.asarray(shard.data) == right).all(), "wrong data"
    return lambda: function(x)


def together() -> None:
    """Lets every process come, however long it takes: no part of what is tested."""
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()


def shape() -> None:
    call("shape", count=6 if RANK == 1 else 5)


def dtype() -> None:
    call("dtype", dtype=np.int32 if RANK == 2 else np.float32)


def collective() -> None:
    call("collective", "all_gather" if RANK == 0 else "psum")


def good() -> None:
    call("good")


def last_good() -> None:
    call("last_good")


def usable() -> None:
    assert float(jax.numpy.sum(jax.numpy.ones(3))) == 3


def mesh() -> None:
    """Same program, but one process has its devices in another order."""
    devices = np.array(jax.devices())
    over = Mesh(devices[::-1] if RANK == 1 else devices, ("x",))
    rows = np.arange(len(devices) * 5, dtype=np.float32).reshape(-1, 5)

    def order(x):
        return pccl_jax.all_gather(x, "x")

    jax.block_until_ready(per_rank(order, over)(spread(rows, over)))


def skip() -> None:
    """Not at the first call, when processes compare notes."""
    function = call("skip")
    together()
    if RANK != 2:
        jax.block_until_ready(function())


def elsewhere() -> None:
    """Different programs: nobody knows that they will never meet, before the time is over."""
    call("here" if RANK != 1 else "there", count=5 if RANK != 1 else 6)


def stop() -> None:
    function = call("stop")
    together()
    if RANK == 1:
        waker = f"import os, time; time.sleep(7); os.kill({os.getpid()}, {int(signal.SIGCONT)})"
        subprocess.Popen([sys.executable, "-S", "-c", waker])
        os.kill(os.getpid(), signal.SIGSTOP)
    jax.block_until_ready(function())


if __name__ == "__main__":
    pccl_jax.init()
    for name in sys.argv[1:]:
        with step(name):
            globals()[name]()
        together()
