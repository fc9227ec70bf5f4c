"""Derivatives equal those of the same program on jax.lax."""

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
W = np.random.default_rng(0).integers(-3, 4, (RANKS * 2, RANKS * 3)).astype(np.float64)
GROUPS = [[0, 2], [3, 1]]

CALLS: dict[str, Program] = {
    "psum": lambda lib, x: lib.psum(x**2, "x") * x,
    "pmean": lambda lib, x: lib.pmean(x**2, "x") * x,
    "psum over tuple": lambda lib, x: lib.psum(x * 2, ("x",)) ** 2,
    "all_gather": lambda lib, x: lib.all_gather(x**2, "x") * x,
    "all_gather axis 1": lambda lib, x: lib.all_gather(x**2, "x", axis=1, tiled=True) ** 2,
    "psum_scatter": lambda lib, x: (
        lib.psum_scatter(x**2, "x", scatter_dimension=1, tiled=True) * x[:, :3]
    ),
    "psum_scatter untiled": lambda lib, x: (
        lib.psum_scatter(x[:, :4] ** 2, "x", scatter_dimension=1) * x[:, 0]
    ),
    "fsdp": lambda lib, x: (lib.all_gather(x, "x", tiled=True) ** 3).sum() * x,
    "gather then scatter": lambda lib, x: lib.psum_scatter(
        lib.all_gather(x, "x", tiled=True) ** 2, "x", tiled=True
    ),
    "groups": lambda lib, x: lib.all_gather(x**2, "x", axis_index_groups=GROUPS).sum(0) * x,
    "scatter in groups": lambda lib, x: lib.psum_scatter(
        x**2, "x", axis_index_groups=GROUPS, tiled=True
    ),
}
each = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
both_checks = pytest.mark.parametrize("check_vma", [True, False])


def loss(call: Program, lib: Any, check_vma: bool) -> Callable[[Any], Any]:
    """A scalar function of the global weights."""

    def body(x: Any) -> Any:
        y = call(lib, x)
        weights = jnp.arange(1, y.size + 1).reshape(y.shape).astype(y.dtype)
        return (weights * y).sum()[None]

    f = jax.shard_map(
        body, mesh=mesh_of(RANKS), in_specs=P("x"), out_specs=P("x"), check_vma=check_vma
    )
    return lambda x: (f(x) * jnp.arange(1.0, RANKS + 1)).sum()


def both(call: Program, check_vma: bool, derive: Callable[[Any], Any]) -> None:
    ours, theirs = (jax.jit(derive(loss(call, lib, check_vma)))(W) for lib in (pccl_jax, lax))
    assert_same(ours, theirs)


@each
@both_checks
def test_grad(call: Program, check_vma: bool) -> None:
    both(call, check_vma, jax.value_and_grad)


@each
def test_grad_of_remat(call: Program) -> None:
    both(call, True, lambda f: jax.grad(jax.checkpoint(f)))


@each
@both_checks
def test_remat_inside(call: Program, check_vma: bool) -> None:
    policy = jax.checkpoint_policies.nothing_saveable

    def wrapped(lib: Any, x: Any) -> Any:
        return jax.checkpoint(lambda x: call(lib, x), policy=policy)(x)

    both(wrapped, check_vma, jax.grad)


@each
def test_jvp(call: Program) -> None:
    both(call, True, lambda f: lambda x: jax.jvp(f, (x,), (x + 1,)))


@each
def test_linearize(call: Program) -> None:
    def derive(f: Any) -> Any:
        def g(x: Any) -> Any:
            y, linear = jax.linearize(f, x)
            return y, linear(x), linear(x * 2)

        return g

    both(call, True, derive)


@each
def test_vjp_inside_shard_map(call: Program) -> None:
    def inside(lib: Any, x: Any) -> Any:
        y, pull = jax.vjp(lambda x: call(lib, x), x)
        return pull(y)[0]

    for check_vma in (True, False):
        both(inside, check_vma, lambda f: f)


@each
def test_second_derivative(call: Program) -> None:
    both(call, True, lambda f: jax.grad(lambda x: (jax.grad(f)(x) ** 2).sum()))


@pytest.mark.parametrize("collective", ["pmax", "pmin"])
def test_max_and_min_have_no_derivative_as_in_lax(collective: str) -> None:
    for lib in (pccl_jax, lax):
        f = loss(lambda lib, x: getattr(lib, collective)(x, "x"), lib, False)
        with pytest.raises(NotImplementedError, match=f"Differentiation rule for '{collective}'"):
            jax.grad(f)(W)
        stopped = loss(
            lambda lib, x: getattr(lib, collective)(lax.stop_gradient(x), "x") * x, lib, False
        )
        assert jax.grad(stopped)(W).shape == W.shape


def test_prod_has_no_derivative() -> None:
    for function in (pccl_jax.all_reduce, pccl_jax.reduce_scatter):
        f = loss(lambda _, x, fn=function: fn(x[:, :4].T, "x", op="prod"), None, False)
        with pytest.raises(NotImplementedError, match="prod"):
            jax.grad(f)(W)


def test_mean_has_a_derivative() -> None:
    def call(lib: Any, x: Any) -> Any:
        if lib is lax:
            return lax.pmean(x**2, "x"), lax.psum_scatter(x.T, "x", tiled=True) / RANKS
        return (
            pccl_jax.all_reduce(x**2, "x", op="mean"),
            pccl_jax.reduce_scatter(x.T, "x", op="mean", tiled=True),
        )

    both(lambda lib, x: sum(y.sum() * x for y in call(lib, x)), True, jax.grad)


@pytest.mark.parametrize("algorithm", ["ring", "latency", "xla"])
def test_transposes_take_the_algorithm_where_they_can(algorithm: str) -> None:
    pccl_jax.choices(clear=True)
    if algorithm == "latency":  # has no reduce-scatter, which no transpose of a psum needs
        f = loss(lambda lib, x: lib.psum(x, "x", algorithm=algorithm), pccl_jax, False)
    else:
        f = loss(lambda lib, x: lib.all_gather(x, "x", algorithm=algorithm), pccl_jax, False)
    jax.jit(jax.grad(f)).lower(W)
    assert {choice.algorithm for choice in pccl_jax.choices()} == {algorithm}


def primitives_of(jaxpr: Any) -> list[str]:
    names = []
    for eqn in jaxpr.eqns:
        names.append(eqn.primitive.name)
        for param in jax.tree.leaves(
            list(eqn.params.values()), is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")
        ):
            inner = getattr(param, "jaxpr", param)
            if hasattr(inner, "eqns"):
                names += primitives_of(inner)
    return names


@pytest.mark.parametrize(
    ("check_vma", "counts"),
    [
        (True, {"all_gather": 2, "reduce_scatter": 1, "all_reduce": 1}),
        (False, {"all_gather": 2, "reduce_scatter": 1, "all_reduce": 2}),
    ],
)
def test_an_fsdp_step_holds_as_many_collectives_as_with_lax(
    check_vma: bool, counts: dict[str, int]
) -> None:
    lax_names = {"all_reduce": ("psum", "psum_invariant")}

    def step(lib: Any) -> Any:
        def layer(h: Any, w: Any) -> Any:
            return jnp.tanh(h @ lib.all_gather(w, "x", tiled=True)), None

        def body(ws: Any, h: Any) -> Any:
            def objective(ws: Any) -> Any:
                out, _ = lax.scan(jax.checkpoint(layer), h, ws)
                return lib.psum((out**2).sum(), "x")

            return jax.grad(objective)(ws)

        specs = (P(None, "x"), P("x"))
        return jax.shard_map(
            body, mesh=mesh_of(RANKS), in_specs=specs, out_specs=specs[0], check_vma=check_vma
        )

    args = np.ones((3, 8, 8)), np.ones((4, 8))
    ours, theirs = (
        primitives_of(jax.make_jaxpr(step(lib))(*args).jaxpr) for lib in (pccl_jax, lax)
    )
    for name, count in counts.items():
        assert ours.count(f"pccl_{name}") == count
        assert sum(theirs.count(n) for n in lax_names.get(name, (name,))) == count
    assert ours.count("pvary") == theirs.count("pvary")
    assert_same(jax.jit(step(pccl_jax))(*args), jax.jit(step(lax))(*args))
