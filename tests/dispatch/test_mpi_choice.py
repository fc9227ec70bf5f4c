"""When algorithm `mpi` is taken, and what is said where it is not."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from meshes import mesh_of, per_rank
from synthetic import REQUEST, assert_refused

import pccl_jax
from pccl_jax.dispatch import Request, select
from pccl_jax.errors import ConfigurationError
from pccl_jax.types import Collective, Op

SUM = replace(REQUEST, mpi="mpich")
GATHER = replace(SUM, collective=Collective.ALL_GATHER, dtype="bfloat16")
REFUSED = {
    "call pccl_jax.init()": replace(SUM, mpi=None),
    "3 ranks in one process": replace(SUM, ranks_per_process=3),
    "2147483648 elements": replace(SUM, shape=(2**31,)),
    "no sum of bfloat16": replace(SUM, dtype="bfloat16"),
    "no prod of float8_e4m3fn": replace(SUM, dtype="float8_e4m3fn", op=Op.PROD),
    "no max of complex64": replace(SUM, dtype="complex64", op=Op.MAX),
    "lose a NaN": replace(SUM, op=Op.MIN),
}


@pytest.mark.parametrize("request_", [SUM, GATHER, replace(SUM, even=False, nodes=4, local=1)])
def test_only_on_request(request_: Request) -> None:
    assert select(request_).algorithm != "mpi"
    assert select(request_, "mpi").algorithm == "mpi"
    assert select(request_, None, "mpi").algorithm == "mpi"
    assert select(request_, "ring", "mpi").algorithm == "ring"


@pytest.mark.parametrize("reason", REFUSED)
def test_refused(reason: str) -> None:
    assert_refused(REFUSED[reason], "mpi", reason)


def test_a_group_of_one_has_nothing_to_move() -> None:
    assert select(replace(SUM, nodes=1, local=1, mpi=None), "mpi").algorithm == "xla"


def test_in_one_process() -> None:
    assert "mpi" in pccl_jax.algorithms()
    call = per_rank(lambda x: pccl_jax.psum(x, "x", algorithm="mpi"), mesh_of(2))
    with pytest.raises(ConfigurationError, match="mpiexec, one process for each device"):
        call(jnp.ones((2, 3)))
    preferred = per_rank(lambda x: pccl_jax.psum(x, "x"), mesh_of(2))
    with pccl_jax.using(algorithm="mpi"):
        assert jax.device_get(preferred(jnp.ones((2, 3)))).tolist() == [[2.0] * 3] * 2
