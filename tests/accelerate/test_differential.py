"""Programs written with jax.lax alone, as they are and accelerated: the results are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.sharding import PartitionSpec as P
from meshes import assert_same, mesh_of

import pccl_jax

N = 4
OUR_CALL = "pccl_collective"
Body = Callable[[Any], Any]


def scan(x: Any) -> Any:
    def turn(carry: Any, _: None) -> tuple[Any, None]:
        whole = lax.all_gather(carry, "x", tiled=True)
        return lax.psum_scatter(whole, "x", tiled=True) / N, None

    return lax.scan(turn, x, None, length=3)[0]


def while_loop(x: Any) -> Any:
    def more(carry: Any) -> Any:
        return carry[0] < 3

    def turn(carry: Any) -> Any:
        i, y = carry
        return i + 1, lax.pmean(y, "x") + y

    return lax.while_loop(more, turn, (0, x))[1]


def cond(x: Any) -> Any:
    positive = lax.psum(lax.stop_gradient(x).sum(), "x") > 0
    return lax.cond(positive, lambda y: lax.all_gather(y, "x").sum(0), lambda y: 2 * y, x)


def switch(x: Any) -> Any:
    branches = [lambda y: y, lambda y: lax.all_gather(y, "x").sum(0), lambda y: -y]
    return lax.switch(jnp.int32(1), branches, x)


def remat(x: Any) -> Any:
    return jax.checkpoint(lambda y: jnp.sin(lax.psum_scatter(y, "x", tiled=True)))(x)


@jax.custom_vjp
def with_own_gradient(x: Any) -> Any:
    return lax.all_gather(x, "x", tiled=True)


def _forward(x: Any) -> tuple[Any, None]:
    return with_own_gradient(x), None


def _backward(_: None, ct: Any) -> tuple[Any]:
    return (2 * lax.psum_scatter(ct, "x", tiled=True),)


with_own_gradient.defvjp(_forward, _backward)


@jax.custom_jvp
def with_own_tangent(x: Any) -> Any:
    return lax.all_gather(x, "x", tiled=True)


@with_own_tangent.defjvp
def _tangent(primals: Any, tangents: Any) -> Any:
    return with_own_tangent(*primals), 3 * lax.all_gather(*tangents, "x", tiled=True)


def gathered_keys(x: Any) -> Any:
    mine = jax.random.split(jax.random.key(lax.axis_index("x")), 3)
    return jax.random.key_data(lax.all_gather(mine, "x", tiled=True))


#: Of one rank's x: float64[8, 4] to an array.
DIFFERENTIABLE: dict[str, Body] = {
    "psum": lambda x: lax.psum(x * x, "x") * x,
    "pmean": lambda x: lax.pmean(x * x, "x") * x,
    "all_gather": lambda x: lax.all_gather(x, "x").sum(0) * x,
    "all_gather axis 1": lambda x: lax.all_gather(x, "x", axis=1).sum(1) * x,
    "all_gather tiled, last axis": lambda x: lax.all_gather(x, "x", axis=1, tiled=True) ** 2,
    "psum_scatter": lambda x: lax.psum_scatter(x, "x", tiled=True) ** 2,
    "psum_scatter, last axis": lambda x: lax.psum_scatter(x, "x", scatter_dimension=1) ** 2,
    "psum of a pytree": lambda x: sum(lax.psum({"a": x, "b": x[:2].sum()}, "x").values()) * x,
    "scan": scan,
    "cond": cond,
    "switch": switch,
    "remat": remat,
    "custom_vjp": lambda x: with_own_gradient(x) ** 2,
    "custom_jvp": lambda x: with_own_tangent(x) ** 2,
    "jit": lambda x: jax.jit(lambda y: lax.psum(y, "x"))(x) * x,
    "vmap": lambda x: jax.vmap(lambda row: lax.psum(row, "x") * row)(x),
}
OTHERS: dict[str, Body] = {
    "pmax": lambda x: lax.pmax(x, "x"),
    "pmin": lambda x: lax.pmin(x, "x"),
    "pmax of bool": lambda x: lax.pmax(x > 0, "x"),
    "psum of bool": lambda x: lax.psum(x > 0, "x"),
    "psum of a constant": lambda x: lax.psum(1, "x") * lax.psum(x, "x"),
    "while": while_loop,
    "nothing": lambda x: lax.psum(x[:0], "x"),
    "bfloat16": lambda x: lax.psum(x.astype(jnp.bfloat16), "x"),
    "complex": lambda x: lax.psum(x * 1j, "x"),
    "packed": lambda x: lax.all_gather(x.astype(jnp.int4), "x"),
    "packed floats": lambda x: lax.all_gather(x.astype(jnp.float4_e2m1fn), "x").astype(x.dtype),
    "keys": gathered_keys,
}
#: Where the transposition of a shard_map differs with check_vma, not all of them again.
TYPED_AND_UNTYPED = [(name, True) for name in DIFFERENTIABLE] + [
    (name, False) for name in ("psum", "all_gather", "psum_scatter", "remat", "custom_vjp")
]

GROUPS = [[0, 2], [1, 3]]
#: What lax has without check_vma only.
UNTYPED: dict[str, Body] = {
    "vmap over its own axis": lambda x: jax.vmap(
        lambda row: lax.psum(row, ("x", "rows")) * row, axis_name="rows"
    )(x),
    "over dimensions too": lambda x: lax.psum(x, ("x", 0)),
    "the largest over dimensions too": lambda x: lax.pmax(x > 0, (1, "x", 0)),
    "over dimensions only": lambda x: lax.psum(x, (0, 1)),
    "psum": lambda x: lax.psum(x, "x", axis_index_groups=GROUPS),
    "psum, uneven": lambda x: lax.psum(x, "x", axis_index_groups=[[0, 1, 2], [3]]),
    "pmax": lambda x: lax.pmax(x, "x", axis_index_groups=GROUPS),
    "all_gather": lambda x: lax.all_gather(x, "x", axis_index_groups=GROUPS),
    "psum_scatter": lambda x: lax.psum_scatter(
        x, "x", axis_index_groups=GROUPS, tiled=True, scatter_dimension=1
    ),
}


def operand() -> Any:
    """Small whole numbers: their sums are exact in any order."""
    return np.arange(N * 8 * 4).reshape(N * 8, 4) % 7 - 3.0


def mapped(body: Body, *, check_vma: bool) -> Callable[[Any], Any]:
    """``body`` on every rank's rows; results are stacked."""

    def stacked(x: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], body(x))

    def varying(x: Any) -> Any:
        return jax.tree.map(lambda leaf: _vary(leaf), stacked(x))

    return jax.shard_map(
        varying if check_vma else stacked,
        mesh=mesh_of(N),
        in_specs=P("x"),
        out_specs=P("x"),
        check_vma=check_vma,
    )


def _vary(leaf: Any) -> Any:
    known = "x" in jax.typeof(leaf).manual_axis_type.varying
    return leaf if known else lax.pcast(leaf, "x", to="varying")


@pytest.mark.parametrize(
    ("name", "check_vma"), TYPED_AND_UNTYPED + [(name, True) for name in OTHERS]
)
def test_values_are_those_of_lax(name: str, check_vma: bool) -> None:
    f = mapped((DIFFERENTIABLE | OTHERS)[name], check_vma=check_vma)
    assert_same(jax.jit(pccl_jax.accelerate(f))(operand()), jax.jit(f)(operand()))


@pytest.mark.parametrize("name", UNTYPED)
def test_groups_and_dimensions(name: str) -> None:
    f = mapped(UNTYPED[name], check_vma=False)
    fast = jax.jit(pccl_jax.accelerate(f))
    pccl_jax.choices(clear=True)
    lowered = fast.lower(operand()).as_text()
    made = pccl_jax.choices(clear=True)
    if "uneven" not in name:
        assert not left_to_lax(lowered)
    found = [line for line in pccl_jax.explain(fast, operand()) if line.ranks is not None]
    assert [line.nbytes for line in found] == [choice.nbytes for choice in made]
    assert_same(fast(operand()), jax.jit(f)(operand()))


@pytest.mark.parametrize("name", ["psum", "all_gather", "psum_scatter", "cond", "jit"])
def test_eager_shard_map(name: str) -> None:
    f = mapped(DIFFERENTIABLE[name], check_vma=False)
    pccl_jax.choices(clear=True)
    actual = pccl_jax.accelerate(f)(operand())
    assert pccl_jax.choices(clear=True), "pccl_jax has served nothing"
    assert_same(actual, f(operand()))
    assert not pccl_jax.choices()


@pytest.mark.parametrize(("name", "check_vma"), TYPED_AND_UNTYPED)
def test_derivatives_are_those_of_lax(name: str, check_vma: bool) -> None:
    """The gradient, a second derivative, and forward mode."""
    f = mapped(DIFFERENTIABLE[name], check_vma=check_vma)
    fast = pccl_jax.accelerate(f)
    x = operand()

    def derivatives(f: Callable[[Any], Any], x: Any) -> Any:
        gradient = jax.grad(lambda x: (f(x) ** 2).sum())
        if name == "custom_vjp":  # no forward mode
            return gradient(x)
        return gradient(x), jax.jvp(gradient, (x,), (x,))[1], jax.jvp(f, (x,), (x,))

    both = [jax.jit(derivatives, static_argnums=0)(g, x) for g in (fast, f)]
    for actual, right in zip(*map(jax.tree.leaves, both), strict=True):
        assert (actual.shape, actual.dtype) == (right.shape, right.dtype)
        np.testing.assert_allclose(actual, right, rtol=1e-12)


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_no_collective_of_the_gradient_is_left_to_lax(name: str, check_vma: bool) -> None:
    f = mapped(DIFFERENTIABLE[name], check_vma=check_vma)
    gradient = jax.grad(lambda x: (pccl_jax.accelerate(f)(x) ** 2).sum())
    text = jax.jit(gradient).lower(operand()).as_text()
    assert OUR_CALL in text
    assert not left_to_lax(text)
    assert left_to_lax(jax.jit(jax.grad(lambda x: (f(x) ** 2).sum())).lower(operand()).as_text())


def left_to_lax(text: str) -> list[str]:
    names = ("all_reduce", "all_gather", "reduce_scatter")
    return [name for name in names if f"stablehlo.{name}" in text]


def test_types_are_those_of_lax() -> None:
    """What varies over which axis, as far as a program can see."""
    types: list[Any] = []

    def body(x: Any) -> Any:
        y = lax.psum(x, "x"), lax.all_gather(x, "x"), lax.pmax(x, "x"), lax.psum_scatter(x, "x")
        types.append(jax.tree.map(jax.typeof, y))
        return y[3]

    f = jax.shard_map(body, mesh=mesh_of(N), in_specs=P("x"), out_specs=P("x"))
    x = np.ones((N * N, 3))
    assert jax.eval_shape(pccl_jax.accelerate(f), x) == jax.eval_shape(f, x)
    assert types[0] == types[1]


def test_reduced_and_unreduced_values() -> None:
    """The types that only lax's functions know: their collectives are served all the same."""

    def body(x: Any) -> Any:
        y = lax.pcast(x, "x", to="unreduced")
        return lax.psum(y, "x")

    f = jax.shard_map(body, mesh=mesh_of(N), in_specs=P("x"), out_specs=P())
    text = jax.jit(pccl_jax.accelerate(f)).lower(operand()).as_text()
    assert OUR_CALL in text
    assert not left_to_lax(text)
    assert_same(jax.jit(pccl_jax.accelerate(f))(operand()), jax.jit(f)(operand()))


@pytest.mark.parametrize("axis", [0, 1])
def test_all_gather_to_an_invarying_value(axis: int) -> None:
    f = jax.shard_map(
        lambda x: lax.all_gather(x, "x", axis=axis, to="invarying"),
        mesh=mesh_of(N),
        in_specs=P("x"),
        out_specs=P(),
    )
    for slow in (f, jax.grad(lambda x: (f(x) ** 2).sum())):
        fast = jax.jit(pccl_jax.accelerate(slow))
        assert not left_to_lax(fast.lower(operand()).as_text())
        assert_same(fast(operand()), jax.jit(slow)(operand()))


def test_vmap_of_shard_map() -> None:
    f = mapped(DIFFERENTIABLE["all_gather"], check_vma=False)
    x = np.stack([operand(), operand() + 1])
    batched = jax.jit(jax.vmap(pccl_jax.accelerate(f)))
    assert_same(batched(x), jax.jit(jax.vmap(f))(x))


def test_vmap_with_spmd_axis_name() -> None:
    mesh = mesh_of(2, 2)
    f = jax.shard_map(
        lambda x: lax.psum(x, "y"), mesh=mesh, in_specs=P("y"), out_specs=P(), check_vma=False
    )
    x = operand()[None].repeat(2, 0)
    run = [jax.jit(jax.vmap(g, spmd_axis_name="x")) for g in (pccl_jax.accelerate(f), f)]
    assert not left_to_lax(run[0].lower(x).as_text())
    assert_same(run[0](x), run[1](x))


def test_several_axes_and_a_permuted_mesh() -> None:
    mesh = mesh_of(2, 3, order=[3, 1, 5, 0, 2, 4])
    f = jax.shard_map(
        lambda x: (lax.psum(x, ("y", "x")), lax.all_gather(x, ("x", "y")), lax.pmax(x, "y")),
        mesh=mesh,
        in_specs=P(("x", "y")),
        out_specs=P(("x", "y")),
        check_vma=False,
    )
    x = np.arange(12.0)
    assert_same(jax.jit(pccl_jax.accelerate(f))(x), jax.jit(f)(x))


def test_partially_manual_meshes_stay_with_lax() -> None:
    f = jax.shard_map(
        lambda x: lax.psum(x, "x"),
        mesh=mesh_of(2, 2),
        in_specs=P("x"),
        out_specs=P(),
        axis_names={"x"},
    )
    pccl_jax.choices(clear=True)
    assert_same(jax.jit(pccl_jax.accelerate(f))(operand()), jax.jit(f)(operand()))
    (choice,) = pccl_jax.choices(clear=True)
    assert choice.algorithm == "xla"
    assert "manual" in choice.reason


def test_pmap() -> None:
    f = jax.pmap(lambda x: lax.psum(x, "i") * lax.all_gather(x, "i").sum(0), axis_name="i")
    x = operand().reshape(N, 8, 4)
    pccl_jax.choices(clear=True)
    actual = pccl_jax.accelerate(f)(x)
    assert {choice.collective for choice in pccl_jax.choices()} == {"all_reduce", "all_gather"}
    assert_same(actual, f(x))


_STEPS: dict[str, Body] = {
    "gather, scatter": lambda x: lax.psum_scatter(
        lax.all_gather(x, "x", axis=1, tiled=True), "x", scatter_dimension=1, tiled=True
    ),
    "sum": lambda x: x + lax.psum(x, "x"),
    "mean": lambda x: x - lax.pmean(x, "x"),
    "largest": lambda x: x * (lax.pmax(lax.stop_gradient(x), "x") > 1),
    "twice": lambda x: lax.scan(lambda c, _: (lax.psum(c, "x") - c, None), x, None, length=2)[0],
    "rematerialised": jax.checkpoint(lambda x: jnp.abs(x) + lax.psum(x, "x")),
}


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(sorted(_STEPS)), min_size=1, max_size=4))
def test_random_programs(steps: list[str]) -> None:
    """Values and gradients of programs put together at random."""

    def body(x: Any) -> Any:
        for step in steps:
            x = _STEPS[step](x)
        return x

    f = mapped(body, check_vma=False)

    def both(g: Callable[[Any], Any]) -> Any:
        return jax.jit(jax.value_and_grad(lambda x: g(x).sum()))(operand())

    assert_same(both(pccl_jax.accelerate(f)), both(f))
