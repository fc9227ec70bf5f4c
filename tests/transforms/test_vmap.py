"""vmap in every place where it can stand, compared with the same on jax.lax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from meshes import assert_same, mesh_of

import pccl_jax

RANKS = 4
Program = Callable[[Any, Any], Any]
GROUPS = [[0, 2], [3, 1]]

# x is [4, 8, 3] on every rank.
CALLS: dict[str, Program] = {
    "psum": lambda lib, x: lib.psum(x, "x"),
    "pmax": lambda lib, x: lib.pmax(x, "x"),
    "pmean": lambda lib, x: lib.pmean(x, "x"),
    "all_gather 0": lambda lib, x: lib.all_gather(x, "x"),
    "all_gather 2": lambda lib, x: lib.all_gather(x, "x", axis=2),
    "all_gather -1": lambda lib, x: lib.all_gather(x, "x", axis=-1),
    "all_gather tiled 1": lambda lib, x: lib.all_gather(x, "x", axis=1, tiled=True),
    "psum_scatter 0": lambda lib, x: lib.psum_scatter(x, "x"),
    "psum_scatter tiled 0": lambda lib, x: lib.psum_scatter(x, "x", tiled=True),
    "psum_scatter tiled 1": lambda lib, x: lib.psum_scatter(
        x, "x", scatter_dimension=1, tiled=True
    ),
    "groups": lambda lib, x: lib.all_gather(x, "x", axis_index_groups=GROUPS),
    "groups sum": lambda lib, x: lib.psum(x, "x", axis_index_groups=GROUPS),
}
each = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
X = (np.arange(RANKS * 4 * 8 * 3) % 51).reshape(RANKS * 4, 8, 3).astype(np.float32)


def shard(body: Callable[..., Any], *, check_vma: bool = False, ranks: int = RANKS) -> Any:
    return jax.shard_map(
        body, mesh=mesh_of(ranks), in_specs=P("x"), out_specs=P("x"), check_vma=check_vma
    )


def batched(lib: Any, f: Callable[[Any], Any], in_axis: int, out_axis: int) -> Callable[[Any], Any]:
    """vmap; for lax one by one, as its own rule for an untiled psum_scatter is wrong."""
    if lib is pccl_jax:
        return jax.vmap(f, in_axis, out_axis)
    return lambda x: jnp.stack([f(row) for row in jnp.moveaxis(x, in_axis, 0)], out_axis)


def both(program: Callable[[Any], Callable[..., Any]], *args: Any) -> None:
    ours, theirs = (jax.jit(program(lib))(*args) for lib in (pccl_jax, lax))
    assert_same(ours, theirs)


@each
@pytest.mark.parametrize("in_axis", [0, 1, 2, 3, -1])
@pytest.mark.parametrize("out_axis", [0, -1])
def test_inside_shard_map(call: Program, in_axis: int, out_axis: int) -> None:
    def program(lib: Any) -> Any:
        def body(x: Any) -> Any:
            batch = jnp.stack([x, x + 1, 2 * x], axis=in_axis)
            return batched(lib, lambda x: call(lib, x), in_axis, out_axis)(batch)[None]

        return shard(body)

    both(program, X)


@each
@pytest.mark.parametrize("in_axis", [0, 1, 3])
def test_outside_shard_map(call: Program, in_axis: int) -> None:
    def program(lib: Any) -> Any:
        return batched(lib, shard(lambda x: call(lib, x)[None]), in_axis, in_axis)

    both(program, np.stack([X, X + 1, 2 * X], axis=in_axis))


@pytest.mark.parametrize("call", [c for n, c in CALLS.items() if n != "groups sum"])
@pytest.mark.parametrize("check_vma", [True, False])
def test_spmd_axis_name(call: Program, check_vma: bool) -> None:
    def program(lib: Any) -> Any:
        f = jax.shard_map(
            lambda x: call(lib, x)[None], mesh=mesh_of(RANKS, 2), in_specs=P("x"),
            out_specs=P("x"), check_vma=check_vma,
        )  # fmt: skip
        return jax.vmap(f, spmd_axis_name="y")

    both(program, np.stack([X, X + 1]))


@each
def test_of_grad(call: Program) -> None:
    if call in (CALLS["pmax"], CALLS["groups sum"]):
        return

    def program(lib: Any) -> Any:
        f = shard(lambda x: (call(lib, x) ** 2).sum()[None])
        return jax.vmap(jax.grad(lambda x: f(x).sum()))

    both(program, np.stack([X, X + 1]))


OWN_AXIS: dict[str, Program] = {
    "psum": lambda lib, x: lib.psum(x, "v"),
    "psum of bool": lambda lib, x: lib.psum(x > 3, "v"),
    "psum of a constant": lambda lib, x: lib.psum(3, "v") + x,
    "psum of unmapped": lambda lib, x: lib.psum(jnp.ones(3), "v") * x,
    "pmax": lambda lib, x: lib.pmax(x, "v"),
    "pmax of unmapped": lambda lib, x: lib.pmax(jnp.ones(3, int), "v") + x,
    "pmin": lambda lib, x: lib.pmin(x, "v"),
    "pmean": lambda lib, x: lib.pmean(x, "v"),
    "all_gather": lambda lib, x: lib.all_gather(x, "v"),
    "all_gather 1": lambda lib, x: lib.all_gather(x, "v", axis=1),
    "all_gather tiled": lambda lib, x: lib.all_gather(x, "v", axis=1, tiled=True),
    "all_gather of unmapped": lambda lib, x: lib.all_gather(jnp.arange(3), "v") + x[0],
    "psum_scatter": lambda lib, x: lib.psum_scatter(x[:3], "v"),
    "psum_scatter tiled": lambda lib, x: lib.psum_scatter(x[:6], "v", tiled=True),
    "psum_scatter 1": lambda lib, x: lib.psum_scatter(x, "v", scatter_dimension=1),
    "psum_scatter unmapped": lambda lib, x: lib.psum_scatter(jnp.arange(3.0), "v") + x,
}


@pytest.mark.parametrize("call", OWN_AXIS.values(), ids=OWN_AXIS)
@pytest.mark.parametrize("in_axis", [0, 1, 2])
def test_over_its_own_axis(call: Program, in_axis: int) -> None:
    x = (np.arange(3 * 8 * 3) % 13).astype(np.float32)
    x = np.moveaxis(x.reshape(3, 8, 3), 0, in_axis)
    both(lambda lib: jax.vmap(lambda x: call(lib, x), in_axis, axis_name="v"), x)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float16])
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("mapped", [True, False])
def test_other_operators_over_their_own_axis(op: str, mapped: bool, dtype: Any) -> None:
    x = np.array([[1, 0, 1], [1, 1, 0], [1, 0, 0]]).astype(dtype)
    one = np.array([1, 0, 1]).astype(dtype)

    def f(row: Any) -> Any:
        operand = row if mapped else jnp.asarray(one)
        return (
            pccl_jax.all_reduce(operand, "v", op=op),
            pccl_jax.reduce_scatter(operand, "v", op=op),
            pccl_jax.reduce_scatter(operand, "v", op=op, tiled=True),
        )

    total, part, tile = jax.vmap(f, axis_name="v")(x)
    rows = x if mapped else np.stack([one] * 3)
    if dtype is np.bool_ and op == "sum":
        rows = rows.astype(np.int32)
    reduce = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[op].reduce
    expected = reduce(rows, axis=0, dtype=rows.dtype)
    assert_same(total, np.stack([expected] * 3))
    assert_same(part, expected)
    assert_same(tile, expected[:, None])


MIXED: dict[str, Program] = {
    "psum": lambda lib, x: lib.psum(x, ("x", "v")),
    "psum reversed": lambda lib, x: lib.psum(x, ("v", "x")),
    "pmax": lambda lib, x: lib.pmax(x, ("v", "x")),
    "pmean": lambda lib, x: lib.pmean(x, ("v", "x")),
    "psum of unmapped": lambda lib, x: lib.psum(lax.axis_index("x"), ("v", "x")) + x,
    "one after the other": lambda lib, x: lib.psum(lib.all_gather(x, "v"), "x"),
    "mesh axis": lambda lib, x: lib.psum_scatter(x, "x", tiled=True),
}


@pytest.mark.parametrize("call", MIXED.values(), ids=MIXED)
def test_mesh_axis_together_with_the_axis_of_vmap(call: Program) -> None:
    def program(lib: Any) -> Any:
        return shard(lambda x: jax.vmap(lambda x: call(lib, x), 1, axis_name="v")(x))

    both(program, X)


@pytest.mark.parametrize("call", [
    lambda lib, x: lib.all_gather(x, ("x", "v")),
    lambda lib, x: lib.psum_scatter(x, ("x", "v"), tiled=True),
    lambda lib, x: lib.psum(x, "v", axis_index_groups=[[0, 1, 2, 3], [4, 5, 6, 7]]),
    lambda lib, x: lib.all_gather(x, "v", axis_index_groups=[[0, 1, 2, 3], [4, 5, 6, 7]]),
])  # fmt: skip
def test_what_lax_does_not_batch_is_refused_alike(call: Program) -> None:
    x = np.ones((RANKS * 32, 8), np.float32)
    for lib in (pccl_jax, lax):
        f = shard(lambda x, lib=lib: jax.vmap(lambda x: call(lib, x), 1, axis_name="v")(x))
        with pytest.raises((NotImplementedError, AssertionError)):
            jax.jit(f).lower(x)


def test_nested() -> None:
    def program(lib: Any) -> Any:
        def inner(x: Any) -> Any:
            return lib.psum(x, "x") + lib.psum(x, "a") - lib.pmax(x, ("b", "x"))

        return shard(lambda x: jax.vmap(jax.vmap(inner, axis_name="b"), axis_name="a")(x))

    both(program, X)
