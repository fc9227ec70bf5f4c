"""What explain says of a program is what happens when it is lowered."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from meshes import mesh_of

import pccl_jax
from pccl_jax.explain import watching

N = 4
STEPS = 5
X = np.ones((N * 4, 8))


def over(body: Any, **options: Any) -> Any:
    options = {"in_specs": P("x"), "out_specs": P("x"), "check_vma": False} | options
    return jax.shard_map(body, mesh=mesh_of(N), **options)


def model(x: Any) -> Any:
    """Collectives of every kind, in loops and branches, ours and lax's."""

    def turn(carry: Any, _: None) -> tuple[Any, None]:
        whole = pccl_jax.all_gather(carry, "x", axis=1, tiled=True)
        return lax.psum_scatter(whole, "x", scatter_dimension=1, tiled=True), None

    x, _ = lax.scan(jax.checkpoint(turn), x, None, length=STEPS)
    most = pccl_jax.pmax(lax.stop_gradient(x).sum(), "x")
    return lax.cond(most > 0, lambda y: y * pccl_jax.psum(y, "x"), lambda y: y, x)


def loss(x: Any) -> Any:
    return over(model)(x).sum()


Key = tuple[str, str, str, int, int, str]


def as_lines(explained: Any) -> Counter[Key]:
    return Counter(
        (line.collective, line.axis, line.dtype, line.nbytes, line.ranks, line.algorithm)
        for line in explained
    )


def linear(x: Any) -> Any:
    """Its gradient does not need its value, nor what nothing needs."""
    return over(lambda x: (pccl_jax.psum(x, "x"), pccl_jax.all_gather(x, "x"))[1])(x).sum()


@pytest.mark.parametrize("transform", ["none", "grad", "vmap", "unused"])
def test_lines_are_the_choices_of_the_lowering(transform: str) -> None:
    function = {"none": over(model), "grad": jax.grad(loss), "vmap": jax.vmap(over(model))}
    function["unused"] = jax.jit(jax.grad(linear))
    fast = pccl_jax.accelerate(function[transform])
    x = np.stack([X, X]) if transform == "vmap" else X
    explained = pccl_jax.explain(fast, x)
    pccl_jax.choices(clear=True)
    jax.jit(fast).lower(x)
    made = pccl_jax.choices(clear=True)
    assert as_lines(explained) == Counter(
        (c.collective, c.axis, c.dtype, c.nbytes, c.ranks, c.algorithm) for c in made
    )
    assert {line.reason for line in explained} == {choice.reason for choice in made}
    assert not pccl_jax.choices(), "explaining makes no choices"


def test_what_stands_in_a_line() -> None:
    lines = pccl_jax.explain(over(model), X)
    gather, scatter, largest, total = lines
    assert (gather.collective, gather.op, gather.runs, gather.conditional) == (
        "all_gather", None, STEPS, False,
    )  # fmt: skip
    assert (scatter.collective, scatter.op, scatter.runs) == ("reduce_scatter", "sum", STEPS)
    assert (largest.op, largest.shape, largest.nbytes, largest.runs) == ("max", (), 8, 1)
    assert (total.op, total.conditional, total.dtype) == ("sum", True, "float64")
    assert (gather.axis, gather.ranks, gather.nodes) == ("'x'", N, 1)
    assert gather.nbytes == X.nbytes
    assert gather.time_us is not None
    assert gather.time_us > 0
    assert "cost model" in gather.reason


def test_lax_calls_are_listed_with_what_would_serve_them() -> None:
    line = pccl_jax.explain(over(model), X)[1]
    assert line.algorithm == "xla"
    assert line.reason.startswith("a call of jax.lax; accelerate() would take ")
    would = line.reason.split("would take ")[1].split(",")[0]
    assert pccl_jax.explain(pccl_jax.accelerate(over(model)), X)[1].algorithm == would
    pccl_jax.install()
    try:
        assert pccl_jax.explain(over(model), X)[1].algorithm == would
    finally:
        pccl_jax.uninstall()


def test_the_line_of_the_source_is_the_users() -> None:
    def body(x: Any) -> Any:
        return pccl_jax.psum(x, "x")  # this line

    text = Path(__file__).read_text(encoding="utf-8").splitlines()
    number = 1 + next(i for i, line in enumerate(text) if line.endswith("# this line"))
    for function in (over(body), jax.grad(lambda x: over(body)(x).sum())):
        for line in pccl_jax.explain(function, X):
            assert line.source is not None
            assert line.source.startswith(f"{__file__}:{number} (")


def test_loops_multiply_and_data_decides() -> None:
    def inner(c: Any, _: None) -> tuple[Any, None]:
        return pccl_jax.psum(c, "x") / N, None

    def outer(c: Any, _: None) -> tuple[Any, None]:
        return lax.scan(inner, c, None, length=3)[0], None

    def looped(x: Any) -> Any:
        x, _ = lax.scan(outer, x, None, length=4)
        return lax.while_loop(lambda y: y.sum() < 9, lambda y: inner(y, None)[0] + 1, x)

    lines = pccl_jax.explain(over(looped), X)
    assert [line.runs for line in lines] == [12, None]
    assert " ? " in str(lines).splitlines()[-3]


def test_why_something_is_left_to_lax() -> None:
    fast = pccl_jax.accelerate(
        over(
            lambda x: (
                lax.ppermute(x, "x", [(0, 1)]),
                lax.psum(x, (0,)),
                lax.psum(x, "x", axis_index_groups=[[0, 1, 2], [3]]),
                pccl_jax.psum(x, "x", algorithm="xla"),
                lax.all_gather(x.astype(jnp.float4_e2m1fn), "x"),
                lax.all_gather(jax.random.key(0), "x"),
            )
        )
    )
    lines = pccl_jax.explain(fast, X)
    assert [line.algorithm for line in lines] == ["xla"] * 6
    permute, numbered, uneven, asked, packed, keys = (line.reason for line in lines)
    assert permute == "pccl_jax has no ppermute"
    assert "dimensions of the array" in numbered
    assert "different sizes" in uneven
    assert "asked for by the call" in asked
    assert packed == "float4_e2m1fn is packed"
    assert keys == "key<fry> is an extended type"


def test_partially_manual_and_group_of_one() -> None:
    f = jax.shard_map(
        lambda x: pccl_jax.psum(x, "x"), mesh=mesh_of(2, 2), in_specs=P("x"), out_specs=P(),
        axis_names={"x"},
    )  # fmt: skip
    (line,) = pccl_jax.explain(f, X)
    assert (line.algorithm, line.ranks, line.nodes, line.time_us) == ("xla", None, None, None)
    assert "manual over all axes" in line.reason
    alone = jax.shard_map(
        lambda x: pccl_jax.psum(x, "y"), mesh=mesh_of(2, 1), in_specs=P("x"), out_specs=P("x")
    )
    (line,) = pccl_jax.explain(alone, X)
    assert (line.algorithm, line.ranks, line.time_us) == ("xla", 1, 0)


def test_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCCL_RANKS_PER_NODE", "2")
    line = pccl_jax.explain(over(lambda x: pccl_jax.psum(x, "x")), X)[0]
    assert (line.ranks, line.nodes) == (N, 2)
    three = jax.shard_map(
        lambda x: pccl_jax.psum(x, "x"), mesh=mesh_of(3), in_specs=P("x"), out_specs=P()
    )
    line = pccl_jax.explain(three, X[:3])[0]
    assert (line.ranks, line.nodes) == (3, None)


def test_shapes_in_place_of_arrays() -> None:
    shape = jax.ShapeDtypeStruct((N * 10**6, 2), jnp.bfloat16)
    (line,) = pccl_jax.explain(over(lambda x: pccl_jax.psum(x, "x")), shape)
    assert (line.dtype, line.nbytes) == ("bfloat16", 4 * 10**6)


def test_table_and_json() -> None:
    explained = pccl_jax.explain(jax.jit(over(model)), X)
    head, titles, *rows = str(explained).split("\n\n")[0].splitlines()
    assert head.startswith("model: 4 collectives, at most ")
    assert titles.split()[:4] == ["collective", "axis", "ranks", "nodes"]
    assert len(rows) == len(explained) == 4
    plain = json.loads(explained.to_json())["collectives"]
    assert [entry["collective"] for entry in plain] == [line.collective for line in explained]
    assert plain[0]["runs"] == STEPS
    assert str(pccl_jax.explain(lambda x: x + 1, X)) == "no collectives"


def test_watching_sees_what_is_lowered_inside() -> None:
    f = jax.jit(over(lambda x: pccl_jax.psum(x, "x")))
    with watching() as outer, watching() as lines:
        f(X)
        f(X)
    assert [line.collective for line in lines] == ["all_reduce"]
    assert outer == lines
    f.lower(X[:N])
    assert len(lines) == 1
    with watching() as lines:
        f.lower(X[: 2 * N])
        f.lower(X[: 3 * N])
    first, second = (line.program for line in lines)
    assert second == f"{first} (no. 2)"


def test_what_is_no_function() -> None:
    with pytest.raises(TypeError, match="not explain"):
        pccl_jax.explain(jnp.ones(3))  # type: ignore[arg-type]
