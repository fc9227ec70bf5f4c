"""scan, while, fori, cond, nested jit, donation, eager: each as with jax.lax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from meshes import assert_same, mesh_of, per_rank

import pccl_jax

X = (np.arange(4 * 4 * 6) % 17).reshape(4, 4, 6).astype(np.float64)


def both(program: Callable[[Any, Any], Any], *, ranks: int = 4, check_vma: bool = False) -> None:
    ours, theirs = (
        per_rank(lambda x, lib=lib: program(lib, x), mesh_of(ranks), check_vma=check_vma)(X)
        for lib in (pccl_jax, lax)
    )
    assert_same(ours, theirs)


def mix(lib: Any, x: Any) -> Any:
    """Keeps shape and exactness: sums of four are halved twice."""
    y = lib.all_gather(x, "x", axis=1, tiled=True)
    y = lib.psum_scatter(y, "x", scatter_dimension=1, tiled=True) / 4
    return y + lib.pmax(x, "x") - lib.psum(x, "x") / 4


@pytest.mark.parametrize("unroll", [1, 3])
def test_scan(unroll: int) -> None:
    def program(lib: Any, x: Any) -> Any:
        def body(c: Any, w: Any) -> Any:
            c = mix(lib, c) + w
            return c, lib.psum(c[0], "x")

        return lax.scan(body, x, jnp.arange(6.0), unroll=unroll)

    both(program)


def test_fori_loop() -> None:
    both(lambda lib, x: lax.fori_loop(0, 5, lambda i, c: mix(lib, c) + i, x))


def test_while_loop_that_ends_by_a_collective() -> None:
    def program(lib: Any, x: Any) -> Any:
        def go(state: Any) -> Any:
            return lib.pmax(state[0].max(), "x") < 500

        return lax.while_loop(go, lambda s: (mix(lib, s[0]) * 2 + 1, s[1] + 1), (x, 0))

    both(program)


@pytest.mark.parametrize("taken", [0.0, 1e9])
def test_cond_on_a_value_equal_on_all_ranks(taken: float) -> None:
    def program(lib: Any, x: Any) -> Any:
        return lax.cond(
            lib.psum(x.sum(), "x") > taken, lambda x: mix(lib, x), lambda x: x + lib.pmin(x, "x"), x
        )

    both(program)


def test_cond_that_differs_between_groups() -> None:
    """Ranks of one row of the mesh go one way together, those of the other the other."""

    def program(lib: Any, x: Any) -> Any:
        def one(x: Any) -> Any:
            return lib.psum(x, "y") * 3

        def other(x: Any) -> Any:
            return lib.all_gather(x, "y").sum(0)

        return lax.cond(lax.axis_index("x") == 1, one, other, x)

    f = per_rank(lambda x: program(pccl_jax, x), mesh_of(2, 2))
    pairs = X.reshape(2, 2, *X.shape[1:]).sum(1)
    np.testing.assert_array_equal(f(X), np.stack([pairs[0]] * 2 + [pairs[1] * 3] * 2))


def test_switch() -> None:
    def program(lib: Any, x: Any) -> Any:
        branches = [lambda x: lib.psum(x, "x"), lambda x: mix(lib, x), lambda x: x]
        return [lax.switch(lib.pmax(i, "x"), branches, x) for i in range(3)]

    both(program)


@pytest.mark.parametrize("check_vma", [True, False])
def test_an_inner_jit_called_twice(check_vma: bool) -> None:
    def program(lib: Any, x: Any) -> Any:
        inner = jax.jit(lambda x: mix(lib, x))
        return inner(inner(x)) + inner(x + 1)

    both(program, check_vma=check_vma)


def test_loop_around_loop_around_jit() -> None:
    def program(lib: Any, x: Any) -> Any:
        inner = jax.jit(lambda x: mix(lib, x))

        def body(c: Any, _: Any) -> Any:
            return lax.fori_loop(0, 2, lambda _, c: inner(c), c) / 2, lib.psum(c, "x")

        return lax.scan(body, x, None, length=3)

    both(program)


def test_independent_calls_in_one_program() -> None:
    both(lambda lib, x: [lib.psum(x + i, "x") for i in range(6)] + [mix(lib, x)])


def test_unused_and_equal_calls() -> None:
    def program(lib: Any, x: Any) -> Any:
        lib.psum(x * 3, "x")
        return lib.psum(x, "x") + lib.psum(x, "x")

    both(program)


def test_donation() -> None:
    def body(x: Any) -> Any:
        return pccl_jax.psum(x, "x") / 4, pccl_jax.all_gather(x, "x").sum(0)

    f = jax.jit(
        jax.shard_map(body, mesh=mesh_of(4), in_specs=P("x"), out_specs=P("x"), check_vma=False),
        donate_argnums=0,
    )
    sharding = jax.sharding.NamedSharding(mesh_of(4), P("x"))
    host = np.arange(16.0).reshape(4, 4)
    for _ in range(3):
        x = jax.device_put(host, sharding)
        mean, total = f(x)
        np.testing.assert_array_equal(mean, np.tile(host.mean(0), (4, 1)))
        np.testing.assert_array_equal(total, np.tile(host.sum(0), (4, 1)))
        assert x.is_deleted()


@pytest.mark.parametrize("check_vma", [True, False])
def test_eager(check_vma: bool) -> None:
    f = per_rank(lambda x: mix(pccl_jax, x), mesh_of(4), check_vma=check_vma, jit=False)
    g = per_rank(lambda x: mix(lax, x), mesh_of(4))
    assert_same(f(X), g(X))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_pmap() -> None:
    def program(lib: Any) -> Any:
        return jax.pmap(lambda x: mix(lib, x), axis_name="x", devices=jax.devices()[:4])

    assert_same(program(pccl_jax)(X), program(lax)(X))


def test_partial_manual_mesh_goes_to_lax() -> None:
    pccl_jax.choices(clear=True)

    def program(lib: Any) -> Any:
        def body(x: Any) -> Any:
            return mix(lib, x) + lib.all_gather(x, "x").sum(0)

        mesh = mesh_of(2, 2)
        return jax.jit(
            jax.shard_map(
                body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"},
                check_vma=True,
            )
        )  # fmt: skip

    sharding = jax.sharding.NamedSharding(mesh_of(2, 2), P("x", "y"))
    x = jax.device_put(X[0].reshape(4, 6), sharding)
    assert_same(program(pccl_jax)(x), program(lax)(x))
    made = pccl_jax.choices()
    assert made
    assert {choice.algorithm for choice in made} == {"xla"}
    assert all("manual over all axes" in choice.reason for choice in made)


@pytest.mark.parametrize("op", ["prod", "max"])
def test_partial_manual_mesh_with_other_operators(op: str) -> None:
    def body(x: Any) -> Any:
        return pccl_jax.all_reduce(x, "x", op=op), pccl_jax.reduce_scatter(x, "x", op=op)

    f = jax.jit(
        jax.shard_map(
            body, mesh=mesh_of(2, 2), in_specs=P("x"), out_specs=P("x"), axis_names={"x"},
            check_vma=False,
        )
    )  # fmt: skip
    x = np.arange(1.0, 13).reshape(4, 3)
    reduce = {"prod": np.multiply, "max": np.maximum}[op]
    total = reduce(x[:2], x[2:])
    assert_same(f(x), (np.concatenate([total] * 2), total.reshape(-1)))


def test_nested_shard_maps_go_together() -> None:
    """The inner one is manual over what the outer one left: all axes by then."""

    def program(lib: Any) -> Any:
        mesh = mesh_of(2, 2)

        def inner(x: Any) -> Any:
            return lib.psum(x, "y") + lib.pmax(x, ("x", "y"))

        def outer(x: Any) -> Any:
            return jax.shard_map(
                inner, in_specs=P(None, "y"), out_specs=P(None, "y"), axis_names={"y"},
                check_vma=False,
            )(lib.psum(x, "x"))  # fmt: skip

        return jax.jit(
            jax.shard_map(
                outer, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"},
                check_vma=False,
            )
        )  # fmt: skip

    x = np.arange(16.0).reshape(4, 4)
    assert_same(program(pccl_jax)(x), program(lax)(x))
