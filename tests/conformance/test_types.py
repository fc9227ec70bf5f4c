"""What a call returns before anything runs: shape, dtype, weak type, over which axes it varies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from meshes import mesh_of

import pccl_jax

from .calls import CALLS, Call, every
from .contexts import X, shard

#: From the rows of one rank, float64[4, 2].
OPERANDS: dict[str, Callable[[Any], Any]] = {
    "int": lambda x: 3,
    "float": lambda x: 2.5,
    "bool": lambda x: True,
    "complex": lambda x: 2j,
    "numpy scalar": lambda x: np.float32(2),
    "numpy": lambda x: np.arange(4.0),
    "numpy, bool": lambda x: np.arange(4) > 1,
    "list": lambda x: [1.0, np.arange(4)],
    "constant": lambda x: jnp.arange(4),
    "weak constant": lambda x: 2.0 * jnp.sin(1.0),
    "weak": lambda x: lax.full((4,), 1.0) * lax.convert_element_type(x[0, 0], float),
    "rows": lambda x: x,
    "number": lambda x: x[0, 0],
    "booleans": lambda x: x > 1,
    "small": lambda x: x.astype(np.int8),
    "half": lambda x: x.astype(jnp.bfloat16),
    "tree": lambda x: {"a": x, "b": (x[:, 0], None)},
    "nothing": lambda x: {},
}


def types_of(lib: Any, call: Call, operand: Callable[[Any], Any], check_vma: bool) -> Any:
    """Structure and types of the result, or the type of the exception."""
    seen: list[Any] = []

    def body(x: Any) -> Any:
        result = call(lib, operand(x), "x")
        seen.append(jax.tree.map(lambda leaf: (jax.typeof(leaf), _weak(leaf)), result))
        return jnp.zeros(())

    f = jax.shard_map(body, mesh=mesh_of(4), in_specs=P("x"), out_specs=P(), check_vma=check_vma)
    try:
        jax.eval_shape(f, X)
    except Exception as error:
        return type(error)
    return seen[0]


def _weak(leaf: Any) -> bool:
    return bool(jax.typeof(leaf).weak_type)


def is_deliberate(name: str, operand: str, theirs: Any) -> bool:
    """Where we do more than lax, or say it in other words; tests/failing has these.

    lax types a psum_scatter of booleans, and cannot lower it; jax 0.10 leaves the check of the
    dimension to Python.
    """
    return "scatter" in name and ("bool" in operand or theirs is IndexError)


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("name", CALLS)
def test_types_are_those_of_lax(name: str, check_vma: bool) -> None:
    for label, operand in OPERANDS.items():
        ours, theirs = (types_of(lib, CALLS[name], operand, check_vma) for lib in (pccl_jax, lax))
        if not is_deliberate(name, label, theirs):
            assert ours == theirs, label


@pytest.mark.parametrize("check_vma", [True, False])
def test_traced_programs_are_typed_as_those_of_lax(check_vma: bool) -> None:
    """Results, effects, and how many casts there are."""

    def traced(lib: Any) -> Any:
        f = shard(lambda x: every(lib, x), check_vma=check_vma)
        program = jax.make_jaxpr(f)(X)
        (inner,) = [e for e in program.eqns if e.primitive.name == "shard_map"]
        casts = sum(e.primitive.name == "pvary" for e in inner.params["jaxpr"].eqns)
        return program.out_avals, program.effects, inner.params["jaxpr"].effects, casts

    assert traced(pccl_jax) == traced(lax)


def test_of_an_axis_without_a_mesh() -> None:
    ours, theirs = (
        jax.make_jaxpr(lambda x, lib=lib: every(lib, x, "v"), axis_env=[("v", 4)])(X[:4])
        for lib in (pccl_jax, lax)
    )
    assert ours.out_avals == theirs.out_avals
    assert ours.effects == theirs.effects


def test_what_a_constant_is_stays_known_while_tracing() -> None:
    """``psum(1, axis)`` is how programs ask for an axis's size, and use it as a number."""
    sizes = []

    def body(x: Any) -> Any:
        sizes.append(int(pccl_jax.psum(1, "x")))
        return x[: pccl_jax.psum(1, "x") // 2]

    assert jax.eval_shape(shard(body), X).shape == (8, 2)
    assert sizes == [4]
