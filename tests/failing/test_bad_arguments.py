"""Bad arguments raise while the program is traced, what jax.lax raises, and say what to do."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from meshes import assert_same, mesh_of, per_rank

import pccl_jax
from pccl_jax.schedule import Inter, Schedule, registry
from pccl_jax.types import Collective

RANKS = 4


def error_of(call: Callable[[Any, Any], Any], lib: Any, x: Any, *, check_vma: bool = False) -> Any:
    """What tracing the call raises, or None."""
    f = per_rank(lambda x: call(lib, x), mesh_of(RANKS), check_vma=check_vma)
    try:
        f.lower(x)
    except Exception as error:
        return error
    return None


def assert_raises_as_lax(
    call: Callable[[Any, Any], Any], x: Any, *says: str, check_vma: bool = False
) -> None:
    theirs = error_of(call, lax, x, check_vma=check_vma)
    ours = error_of(call, pccl_jax, x, check_vma=check_vma)
    assert theirs is not None, "lax accepts this"
    assert isinstance(ours, type(theirs)), (ours, theirs)
    for words in says:
        assert words in str(ours)


X = np.ones((RANKS, 6, 4), np.float32)

CALLS: dict[str, Callable[..., Any]] = {
    "psum": lambda lib, x, **kw: lib.psum(x, kw.pop("axis_name", "x"), **kw),
    "pmax": lambda lib, x, **kw: lib.pmax(x, kw.pop("axis_name", "x"), **kw),
    "pmean": lambda lib, x, **kw: lib.pmean(x, kw.pop("axis_name", "x"), **kw),
    "all_gather": lambda lib, x, **kw: lib.all_gather(x, kw.pop("axis_name", "x"), **kw),
    "psum_scatter": lambda lib, x, **kw: lib.psum_scatter(
        x, kw.pop("axis_name", "x"), scatter_dimension=1, **kw
    ),
}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@each_call
@pytest.mark.parametrize("check_vma", [False, True])
@pytest.mark.parametrize("axis_name", ["nope", ("x", "nope")], ids=str)
def test_unknown_axis(call: Any, axis_name: Any, check_vma: bool) -> None:
    """A NameError always; lax fails an assertion where check_vma is set."""
    attempt = functools.partial(error_of, x=X, check_vma=check_vma)
    assert attempt(lambda lib, x: call(lib, x, axis_name=axis_name), lax) is not None
    error = attempt(lambda lib, x: call(lib, x, axis_name=axis_name), pccl_jax)
    assert isinstance(error, NameError)
    assert "unbound axis name: nope" in str(error)
    assert "shard_map" in str(error)


@each_call
def test_outside_shard_map(call: Any) -> None:
    with pytest.raises(NameError, match="x"):
        call(lax, jnp.ones((6, 4)))
    with pytest.raises(NameError, match="x"):
        call(pccl_jax, jnp.ones((6, 4)))


def test_scatter_dimension_that_does_not_divide() -> None:
    assert_raises_as_lax(
        lambda lib, x: lib.psum_scatter(x, "x", tiled=True), X, "must be divisible", "pad it to 8"
    )


def test_untiled_scatter_of_another_size() -> None:
    assert_raises_as_lax(
        lambda lib, x: lib.psum_scatter(x, "x"), X, "must match shard count 4", "tiled=True"
    )


@pytest.mark.parametrize("axis", [3, -4])
@pytest.mark.parametrize("tiled", [False, True])
def test_axis_out_of_range(axis: int, tiled: bool) -> None:
    axis += (axis > 0) * (not tiled) - (axis < 0) * (not tiled)
    assert_raises_as_lax(lambda lib, x: lib.all_gather(x, "x", axis=axis, tiled=tiled), X)


@pytest.mark.parametrize("dimension", [2, -3])
def test_scatter_dimension_out_of_range(dimension: int) -> None:
    """A ValueError, as lax raises since jax 0.12; before, it is an IndexError."""
    error = error_of(
        lambda lib, x: lib.psum_scatter(x, "x", scatter_dimension=dimension), pccl_jax, X
    )
    assert isinstance(error, ValueError)
    assert f"axis {dimension} is out of bounds" in str(error)


@pytest.mark.parametrize("collective", ["psum", "pmax", "all_gather", "psum_scatter"])
@pytest.mark.parametrize(
    "groups",
    [[[0, 1], [2]], [[0, 1], [1, 2]], [[0, 1], [2, 7]], [[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 1]], []],
    ids=str,
)
def test_malformed_groups(collective: str, groups: Any) -> None:
    """Refused always, also where lax takes them and computes something else or crashes later."""
    x = X[:, :2] if collective == "psum_scatter" else X
    error = error_of(lambda lib, x: getattr(lib, collective)(x, "x", axis_index_groups=groups),
                     pccl_jax, x)  # fmt: skip
    assert isinstance(error, ValueError)
    assert "axis_index_groups" in str(error)


@pytest.mark.parametrize("collective", ["all_gather", "psum_scatter"])
def test_groups_of_different_sizes(collective: str) -> None:
    groups = [[0, 1, 2], [3]]
    error = error_of(
        lambda lib, x: getattr(lib, collective)(x, "x", axis_index_groups=groups), pccl_jax,
        X[:, :3],
    )  # fmt: skip
    assert isinstance(error, ValueError)
    assert "same size" in str(error)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("rign", "'ring'"), ("hier_rink", "'hier_ring'"), ("zzz", "Known algorithms")],
)
@each_call
def test_unknown_algorithm(call: Any, name: str, hint: str) -> None:
    error = error_of(lambda lib, x: call(lib, x, algorithm=name), pccl_jax, X)
    assert isinstance(error, ValueError)
    assert hint in str(error)
    assert repr(name) in str(error)


def test_unknown_algorithm_in_using(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="Did you mean 'ring'"), pccl_jax.using(algorithm="rign"):
        pass
    monkeypatch.setenv("PCCL_ALGORITHM", "rign")
    error = error_of(lambda lib, x: lib.psum(x, "x"), pccl_jax, X)
    assert isinstance(error, ValueError)
    assert "Did you mean 'ring'" in str(error)


@pytest.mark.parametrize("collective", ["all_gather", "psum_scatter"])
def test_algorithm_that_lacks_the_collective(collective: str) -> None:
    call = CALLS[collective]
    error = error_of(lambda lib, x: call(lib, x, algorithm="latency"), pccl_jax, X)
    assert isinstance(error, ValueError)
    assert "'latency'" in str(error)
    assert "use one of" in str(error)


@pytest.mark.parametrize("function", ["all_reduce", "reduce_scatter"])
def test_bad_operator(function: str) -> None:
    def attempt(op: Any, x: Any) -> Any:
        return error_of(lambda lib, x: getattr(lib, function)(x, "x", op=op), pccl_jax, x)

    x = np.ones((RANKS, RANKS), np.float32)
    error = attempt("add", x)
    assert isinstance(error, ValueError)
    assert "expected one of" in str(error)
    for op in ("and", "or"):
        error = attempt(op, x)
        assert isinstance(error, TypeError)
        assert "booleans" in str(error)
        assert attempt(op, x > 0) is None


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_bad_ranks_per_node(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PCCL_RANKS_PER_NODE", text)
    error = error_of(lambda lib, x: lib.psum(x, "x"), pccl_jax, X)
    assert isinstance(error, ValueError)
    assert "PCCL_RANKS_PER_NODE" in str(error)
    with pytest.raises(ValueError, match="PCCL_RANKS_PER_NODE"):
        pccl_jax.topology()


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int4", "complex64"])
@pytest.mark.parametrize("collective", ["psum", "pmax", "psum_scatter"])
def test_dtypes_without_kernels(collective: str, dtype: str) -> None:
    """They lower as lax does, or fail as lax does."""
    x = jnp.asarray(np.ones((RANKS, RANKS, RANKS)), dtype)
    call = CALLS[collective]
    theirs, ours = (error_of(call, lib, x) for lib in (lax, pccl_jax))
    assert type(theirs) is type(ours), (theirs, ours)


@pytest.mark.parametrize("value", ["text", None, object()], ids=["str", "None", "object"])
@each_call
def test_what_is_no_array(call: Any, value: Any) -> None:
    if value is None:  # an empty pytree
        return
    theirs = error_of(lambda lib, x: call(lib, value), lax, X)
    ours = error_of(lambda lib, x: call(lib, value), pccl_jax, X)
    assert isinstance(ours, TypeError), ours
    assert isinstance(theirs, TypeError), theirs


POSITIONAL = {
    "psum": lambda lib, x: lib.psum(x, 0),
    "psum with a name": lambda lib, x: lib.psum(x, ("v", 0)),
    "pmax": lambda lib, x: lib.pmax(x, 1),
    "pmin": lambda lib, x: lib.pmin(x, ("v", 0)),
}


@pytest.mark.parametrize("call", POSITIONAL.values(), ids=POSITIONAL)
def test_positional_axes_are_for_lax(call: Any) -> None:
    x = jnp.arange(24.0).reshape(2, 3, 4)
    ours, theirs = (
        jax.vmap(lambda x, lib=lib: call(lib, x), axis_name="v")(x) for lib in (pccl_jax, lax)
    )
    assert_same(ours, theirs)


@pytest.mark.parametrize("call", [
    lambda lib, x: lib.psum(x, 0), lambda lib, x: lib.psum(x, ("x", 0)),
    lambda lib, x: lib.pmax(x, 0), lambda lib, x: lib.all_gather(x, 0),
    lambda lib, x: lib.psum_scatter(x, 0),
])  # fmt: skip
@pytest.mark.parametrize("check_vma", [False, True])
def test_positional_axes_in_shard_map(call: Any, check_vma: bool) -> None:
    """Accepted or refused as by lax."""
    theirs, ours = (error_of(call, lib, X, check_vma=check_vma) for lib in (lax, pccl_jax))
    assert (theirs is None) == (ours is None), (theirs, ours)
    assert theirs is None or isinstance(ours, type(theirs))


def test_positional_axes_of_concrete_arrays() -> None:
    assert_same(pccl_jax.psum(np.arange(3), 0), lax.psum(np.arange(3), 0))


def test_collectives_of_a_library_between_nodes_are_for_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_algorithms", dict(registry._algorithms))

    def by_library(collective: Collective, nodes: int, local: int) -> Schedule:
        return Schedule(collective, "by_library", nodes, local, True, (Inter(collective),))

    registry.register("by_library", by_library, [Collective.ALL_GATHER], hierarchical=False)
    gather = functools.partial(pccl_jax.all_gather, axis_name="x", algorithm="by_library")
    f = per_rank(gather, mesh_of(RANKS))
    with pytest.raises(jax.errors.JaxRuntimeError, match="'by_library' is for GPUs"):
        f(jnp.zeros(RANKS))
