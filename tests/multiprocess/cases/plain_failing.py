"""``comm=`` where a process does something else than the others, or what nobody may do."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _case import RANK, report, step
from _plain import WORLD, all_equal, check
from mpi4py import MPI

import pccl_jax

#: When the others have given up already.
LATE_S = float(os.environ["PCCL_TIMEOUT_S"]) + 1.5


def call(comm: Any, collective: str = "psum", count: int = 5, dtype: Any = np.float32) -> None:
    """A collective over a communicator, checked."""
    one = np.ones(count, dtype)
    right = one * comm.size if collective == "psum" else np.ones((comm.size, count), dtype)
    check(lambda x: getattr(pccl_jax, collective)(x, comm=comm), one, right)


def shape() -> None:
    call(WORLD.Dup(), count=6 if RANK == 1 else 5)


def dtype() -> None:
    call(WORLD.Dup(), dtype=np.int32 if RANK == 2 else np.float32)


def collective() -> None:
    call(WORLD.Dup(), "all_gather" if RANK == 0 else "psum")


def fails(comm: Any, **different: Any) -> None:
    with pytest.raises(Exception, match=r"processes disagree|not used any more"):
        call(comm, **different)


def revoked() -> None:
    """After a failure nobody can tell which calls belong together; another communicator serves."""
    comm = WORLD.Dup()
    fails(comm, count=5 + RANK)
    again = comm.Dup()
    call(again)
    call(comm)


def elsewhere() -> None:
    """All but one are in another collective, by algorithms that send other messages."""
    comm = WORLD.Dup()
    call(comm, "psum" if RANK == 2 else "all_gather", 5)


def library() -> None:
    """Two have begun what the MPI library cannot take back, as far as they could tell."""
    comm = WORLD.Dup()
    one = np.ones(5 if RANK < 2 else 6, np.float32)
    check(lambda x: pccl_jax.psum(x, comm=comm, algorithm="mpi"), one, one * comm.size)


def skip() -> None:
    """One makes a call less than the others, and comes when they have given up."""
    comm = WORLD.Dup()
    call(comm)
    WORLD.Barrier()
    if RANK == 2:
        time.sleep(LATE_S)
    call(comm)


def join() -> None:
    """One comes late to the first use."""
    comm = WORLD.Dup()
    if RANK == 2:
        time.sleep(LATE_S)
        call(comm)
        return
    with pytest.raises(pccl_jax.ConfigurationError, match="collective over it") as late:
        call(comm)
    waited = f"has waited {LATE_S - 1.5:g} s"
    assert f"process {RANK} of a communicator of 3 processes {waited}" in str(late.value)
    call(comm)


def good() -> None:
    call(WORLD)
    all_equal(jnp.sum(jnp.ones(3)), np.float64(3), "JAX")


def refused() -> None:
    """Each with what it should be instead."""
    member = WORLD.Split(MPI.UNDEFINED if RANK == 0 else 1)
    freed = WORLD.Dup()
    freed.Free()
    null = member if RANK == 0 else freed
    x = jnp.ones(3)

    def groups(x: Any) -> Any:
        return pccl_jax.psum(x, comm=WORLD, axis_index_groups=[[0], [1, 2]])

    cases = [
        (lambda x: pccl_jax.psum(x, comm="world"), TypeError, "got 'world' of type str"),
        (lambda x: pccl_jax.psum(x, WORLD), TypeError, "is passed as comm="),
        (lambda x: pccl_jax.psum(x), TypeError, "axis_name, a mesh axis, or comm"),
        (lambda x: pccl_jax.psum(x, "x", comm=WORLD), TypeError, "not both; got 'x'"),
        (lambda x: pccl_jax.all_gather(x, comm=null), ValueError, "comm is MPI_COMM_NULL"),
        (groups, ValueError, "comm.Split()"),
        (
            lambda x: pccl_jax.psum(x, comm=WORLD, algorithm="xla"),
            pccl_jax.ConfigurationError,
            "XLA does not connect the processes",
        ),
        (
            lambda x: pccl_jax.pmax(x + 1j, comm=WORLD),
            TypeError,
            "no kernel reduces complex128 with max",
        ),
        (
            lambda x: pccl_jax.all_gather(x.astype(jnp.int4), comm=WORLD),
            TypeError,
            "convert it to int8",
        ),
        (
            lambda x: pccl_jax.psum_scatter(x[:2], comm=WORLD, tiled=True),
            ValueError,
            "must be divisible by shard_count 3",
        ),
        (jax.grad(lambda x: pccl_jax.pmax(x, comm=WORLD).sum()), NotImplementedError, "pmax"),
    ]
    for function, error, text in cases:
        with pytest.raises(error, match=re.escape(text)):
            jax.jit(function)(x)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with step(name):
            globals()[name]()
        WORLD.Barrier()
    report("end")
