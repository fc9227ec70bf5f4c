"""Types: what shard_map knows of where a result varies is what it knows of lax's."""

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

Program = Callable[[Any, Any], Any]

CALLS: dict[str, Program] = {
    "psum": lambda lib, x: lib.psum(x, "x"),
    "psum y": lambda lib, x: lib.psum(x, "y"),
    "psum both": lambda lib, x: lib.psum(x, ("y", "x")),
    "pmean": lambda lib, x: lib.pmean(x, "x"),
    "pmax": lambda lib, x: lib.pmax(x, "x"),
    "pmin": lambda lib, x: lib.pmin(x, ("x", "y")),
    "all_gather": lambda lib, x: lib.all_gather(x, "x"),
    "all_gather tiled": lambda lib, x: lib.all_gather(x, "y", axis=1, tiled=True),
    "all_gather both": lambda lib, x: lib.all_gather(x, ("x", "y")),
    "psum_scatter": lambda lib, x: lib.psum_scatter(x, "x", tiled=True),
    "psum_scatter y": lambda lib, x: lib.psum_scatter(x[:2], "y", scatter_dimension=0),
    "psum of a scalar": lambda lib, x: lib.psum(x.sum(), "x"),
    "twice": lambda lib, x: lib.psum(lib.psum(x, "x"), "y"),
    "psum of an invariant": lambda lib, x: lib.psum(jnp.ones(3) + 0 * lib.psum(x[0, 0], "x"), "x"),
    "all_gather of an invariant": lambda lib, x: lib.all_gather(lib.psum(x, "x"), "x"),
}
SPECS = [P("x", "y"), P("x"), P(None, "y"), P(("x", "y")), P()]
X = np.arange(16.0 * 8).reshape(16, 8)


def type_of(call: Program, lib: Any, spec: Any, check_vma: bool) -> Any:
    """The type of the result inside shard_map, or the type of the exception."""
    seen: list[Any] = []

    def body(x: Any) -> Any:
        seen.append(jax.typeof(call(lib, x)))
        return jnp.zeros(())

    mesh = mesh_of(4, 2)
    f = jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=P(), check_vma=check_vma)
    try:
        jax.eval_shape(f, X)
    except Exception as error:
        return type(error)
    return seen[0]


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_result_type(call: Program, spec: Any, check_vma: bool) -> None:
    ours, theirs = (type_of(call, lib, spec, check_vma) for lib in (pccl_jax, lax))
    if not isinstance(theirs, type):  # lax refuses to mix varying and invarying axes; we cast
        assert ours == theirs


@pytest.mark.parametrize("out_spec", [P(), P("x"), P("y"), P("x", "y")], ids=str)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_out_specs_are_accepted_or_refused_alike(call: Program, out_spec: Any) -> None:
    def refused(lib: Any) -> bool:
        f = jax.shard_map(
            lambda x: call(lib, x).reshape(-1, 1), mesh=mesh_of(4, 2), in_specs=P("x", "y"),
            out_specs=out_spec, check_vma=True,
        )  # fmt: skip
        try:
            jax.eval_shape(f, X)
        except ValueError:
            return True
        return False

    assert refused(pccl_jax) == refused(lax)


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
def test_every_all_reduce_is_equal_on_all_devices(op: str) -> None:
    """Sum and prod may leave shard_map unsharded; max and min are typed as lax types pmax."""
    f = jax.shard_map(
        lambda x: pccl_jax.all_reduce(x, "x", op=op), mesh=mesh_of(4), in_specs=P("x"),
        out_specs=P("x"), check_vma=True,
    )  # fmt: skip
    x = np.arange(1, 5)
    expected = {"sum": 10, "prod": 24, "max": 4, "min": 1}[op]
    np.testing.assert_array_equal(jax.jit(f)(x), [expected] * 4)


def test_groups_vary_over_the_axis() -> None:
    types = []

    def body(x: Any) -> Any:
        y = pccl_jax.psum(x, "x", axis_index_groups=[[0, 1], [2, 3]])
        types.append(jax.typeof(y))
        return y

    f = jax.shard_map(body, mesh=mesh_of(4), in_specs=P("x"), out_specs=P("x"), check_vma=True)
    np.testing.assert_array_equal(jax.jit(f)(np.arange(4)), [1, 1, 5, 5])
    assert types[0].manual_axis_type.varying == frozenset({"x"})
