"""Single programs that lax runs, each of a kind that no context has."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec as P
from meshes import assert_same, mesh_of

import pccl_jax

from .calls import CALLS
from .contexts import X, shard, weighted


def count(program: str, *names: str) -> int:
    return sum(program.count(f"{name}[") for name in names)


def saves_gathers(primitive: Any, *_: Any, **__: Any) -> bool:
    """A policy of a user: by the name of the primitive, ours or lax's."""
    return "all_gather" in primitive.name


@pytest.mark.parametrize(
    ("policy", "gathers"),
    [
        (saves_gathers, 1),
        (jax.checkpoint_policies.save_only_these_names("gathered"), 1),
        (jax.checkpoint_policies.everything_saveable, 1),
        (jax.checkpoint_policies.nothing_saveable, 2),
    ],
    ids=["by primitive", "by name", "everything", "nothing"],
)
def test_remat_policies_save_what_they_save_with_lax(policy: Any, gathers: int) -> None:
    def gradient(lib: Any) -> Callable[[Any], Any]:
        @jax.checkpoint
        def outer(x: Any) -> Any:
            return x

        def layer(x: Any) -> Any:
            whole = checkpoint_name(lib.all_gather(x**2, "x", tiled=True), "gathered")
            return whole**2

        f = shard(lambda x: weighted(jax.checkpoint(layer, policy=policy)(outer(x)))[None])
        return jax.grad(lambda x: f(x).sum())

    ours, theirs = (str(jax.make_jaxpr(gradient(lib))(X)) for lib in (pccl_jax, lax))
    assert count(ours, "pccl_all_gather") == count(theirs, " all_gather") == gathers
    assert_same(jax.jit(gradient(pccl_jax))(X), jax.jit(gradient(lax))(X))


@pytest.mark.parametrize("scatter", [True, False])
def test_short_rows_of_unreduced_and_reduced_values(scatter: bool) -> None:
    """Where the chunks are moved along another dimension: the types are lax's all the same."""

    def scattered(x: Any) -> Any:
        partial = lax.pcast(jnp.concatenate([x, x], 1), "x", to="unreduced")
        return lax.psum_scatter(partial, "x", scatter_dimension=1, tiled=True)

    def gathered(x: Any) -> Any:
        whole = lax.all_gather(x, "x", axis=1, tiled=True, to="reduced")
        return lax.pcast(whole, "x", to="varying") ** 2

    f = shard(scattered if scatter else gathered)
    for slow in (f, jax.grad(lambda x: weighted(f(x)))):
        pccl_jax.choices(clear=True)
        assert_same(jax.jit(pccl_jax.accelerate(slow))(X), jax.jit(slow)(X))
        assert {choice.algorithm for choice in pccl_jax.choices(clear=True)} - {"xla"}


def test_integers_beside_floats_in_derivatives() -> None:
    """Tangents of integers are float0."""
    whole = X.astype(int)

    def run(lib: Any) -> Any:
        f = jax.shard_map(
            lambda x, i: lib.psum(x * i, "x").sum() * lib.psum(i, "x").sum(),
            mesh=mesh_of(4), in_specs=P("x"), out_specs=P(),
        )  # fmt: skip
        gradient = jax.jit(jax.grad(f, argnums=(0, 1), allow_int=True))
        return gradient(X, whole)

    ours, theirs = run(pccl_jax), run(lax)
    assert ours[1].dtype == theirs[1].dtype == jax.dtypes.float0
    assert_same(ours[0], theirs[0])


def test_axes_of_size_one_that_types_leave_out() -> None:
    """A setting of JAX under which lax's reductions skip such axes."""

    def run(lib: Any) -> Any:
        f = shard(lambda x: (lib.psum(x, "x"), lib.psum_scatter(x, "x", tiled=True)), mesh_of(1))
        return jax.make_jaxpr(f)(X).out_avals, f(X)

    name = "jax_remove_size_one_mesh_axis_from_type"
    jax.config.update(name, True)
    try:
        (our_types, ours), (their_types, theirs) = run(pccl_jax), run(lax)
    finally:
        jax.config.update(name, False)
    assert our_types == their_types
    assert_same(ours, theirs)


def test_partial_manual_meshes_are_lowered_as_lax_lowers_them() -> None:
    """No transposition that is ours only: one operation for each call, as with lax."""

    def operations(lib: Any) -> list[str]:
        f = shard(lambda x: [call(lib, x, "x") for call in CALLS.values()], mesh_of(4, 2),
                  axis_names={"x"}, check_vma=False)  # fmt: skip
        text = jax.jit(f).lower(X).as_text()
        return [line.split("stablehlo.")[1].split("(")[0].split(" ")[0]
                for line in text.splitlines() if "stablehlo." in line]  # fmt: skip

    assert "transpose" not in operations(lax)
    assert operations(pccl_jax) == operations(lax)


BAD: dict[str, Callable[[Any, Any], Any]] = {
    "unbound axis": lambda lib, x: lib.psum(x, "nope"),
    "unbound axis, gather": lambda lib, x: lib.all_gather(x, "nope"),
    "unbound axis, scatter": lambda lib, x: lib.psum_scatter(x, "nope"),
    "not divisible": lambda lib, x: lib.psum_scatter(x[:3], "x", tiled=True),
    "other size": lambda lib, x: lib.psum_scatter(x[:3], "x"),
    "axis out of range": lambda lib, x: lib.all_gather(x, "x", axis=4),
    "unhashable axis": lambda lib, x: lib.psum(x, {"x": 1}),
    "no array": lambda lib, x: lib.psum("text", "x"),
    "to": lambda lib, x: lib.all_gather(x, "x", to="nowhere"),
    "unreduced": lambda lib, x: lib.all_gather(lax.pcast(x, "x", to="unreduced"), "x"),
    "parts of what is unreduced": lambda lib, x: lib.psum(
        lax.pcast(x, "x", to="unreduced"), "x", axis_index_groups=[[0, 1], [2, 3]]
    ),
    "keyword": lambda lib, x: lib.psum(x, "x", groups=None),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_are_of_the_type_and_in_the_place_of_lax(name: str) -> None:
    """While the call is traced, so that the traceback leads to the user's line."""

    def error_of(lib: Any) -> Exception:
        check_vma = "unbound" not in name  # where lax fails an assertion
        with pytest.raises(Exception) as caught:  # noqa: PT011
            jax.eval_shape(shard(lambda x: BAD[name](lib, x), check_vma=check_vma), X)
        return caught.value

    ours, theirs = error_of(pccl_jax), error_of(lax)
    assert type(ours) is type(theirs), (ours, theirs)
    frames = traceback.extract_tb(ours.__traceback__)
    assert any(f.filename == __file__ and "BAD[name]" in f.line for f in frames if f.line)
    if "unbound" in name:
        assert str(theirs).partition(". To fix")[0] in str(ours)


def test_an_axis_of_vmap_where_types_are_tracked() -> None:
    """lax has no collective there; the error says what to do."""
    for call in CALLS.values():
        f = shard(lambda x, call=call: jax.vmap(lambda x: call(pccl_jax, x, "v"), axis_name="v")(x))
        with pytest.raises(ValueError, match=r"axis 'v' is no axis of the mesh.*check_vma=False"):
            jax.eval_shape(f, np.stack([X] * 4))
