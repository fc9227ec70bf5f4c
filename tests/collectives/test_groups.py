"""Who takes part: several axes, permuted and sub-meshes, axis_index_groups, pytrees."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from meshes import algorithms, assert_same, mesh_of, per_rank

import pccl_jax

SCHEDULES = tuple(name for name in algorithms("all_gather") if name != "xla")


def values(ranks: int, *shape: int) -> np.ndarray:
    return np.arange(ranks * int(np.prod(shape)), dtype=np.int32).reshape(ranks, *shape) % 97


def both(
    program: Callable[[Any, Any], Any], mesh: Any, *args: Any, check_vma: bool = False
) -> None:
    """Asserts that the program gives the same with pccl_jax and with jax.lax."""
    ours, theirs = (
        per_rank(lambda *a, lib=lib: program(lib, *a), mesh, check_vma=check_vma)(*args)
        for lib in (pccl_jax, lax)
    )
    assert_same(ours, theirs)


def collect(lib: Any, x: Any, axes: Any) -> Any:
    ranks = lax.axis_size(axes)
    wide = jnp.concatenate([x + i for i in range(ranks)])
    return (
        lib.psum(x, axes), lib.pmax(x, axes), lib.pmin(x, axes), lib.pmean(x, axes),
        lib.all_gather(x, axes), lib.all_gather(x, axes, axis=1, tiled=True),
        lib.psum_scatter(wide, axes, tiled=True),
    )  # fmt: skip


AXES_2D = ["x", "y", ("x",), ("x", "y"), ("y", "x")]
AXES_3D = ["y", ("z", "x"), ("y", "z"), ("z", "x", "y"), ("x", "y", "z")]


@pytest.mark.parametrize("per_node", [None, 2, 4])
@pytest.mark.parametrize("axes", AXES_2D, ids=str)
def test_axes_of_a_2d_mesh(
    monkeypatch: pytest.MonkeyPatch, axes: Any, per_node: int | None
) -> None:
    if per_node:
        monkeypatch.setenv("PCCL_RANKS_PER_NODE", str(per_node))
    both(lambda lib, x: collect(lib, x, axes), mesh_of(2, 4), values(8, 3, 20))


@pytest.mark.parametrize("axes", AXES_3D, ids=str)
def test_axes_of_a_3d_mesh(axes: Any) -> None:
    both(lambda lib, x: collect(lib, x, axes), mesh_of(2, 3, 2), values(12, 2, 3))


@pytest.mark.parametrize("per_node", [None, 2, 4])
@pytest.mark.parametrize("axes", ["x", "y", ("y", "x")], ids=str)
def test_permuted_mesh(monkeypatch: pytest.MonkeyPatch, axes: Any, per_node: int | None) -> None:
    if per_node:
        monkeypatch.setenv("PCCL_RANKS_PER_NODE", str(per_node))
    mesh = mesh_of(2, 4, order=[5, 2, 7, 0, 3, 6, 1, 4])
    both(lambda lib, x: collect(lib, x, axes), mesh, values(8, 2, 5))


@pytest.mark.parametrize("algorithm", SCHEDULES)
@pytest.mark.parametrize("axes", [("y", "x"), ("x", "y"), "y"], ids=str)
def test_axis_order_with_every_algorithm(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, axes: Any
) -> None:
    monkeypatch.setenv("PCCL_RANKS_PER_NODE", "2")

    def program(lib: Any, x: Any) -> Any:
        kw = {"algorithm": algorithm} if lib is pccl_jax else {}
        ranks = lax.axis_size(axes)
        return (
            lib.psum(x, axes, **kw), lib.all_gather(x, axes, **kw),
            lib.psum_scatter(jnp.tile(x, (ranks, 1)), axes, tiled=True, **kw),
        )  # fmt: skip

    both(program, mesh_of(4, 2), values(8, 3, 20))


def test_mesh_on_some_of_the_devices() -> None:
    devices = np.array(jax.devices())[[9, 3, 14]]
    mesh = jax.sharding.Mesh(devices, ("x",))
    both(lambda lib, x: collect(lib, x, "x"), mesh, values(3, 2, 5))


EQUAL_GROUPS = [
    [[0, 1], [2, 3]], [[3, 0], [1, 2]], [[0, 1, 2, 3]], [[2], [0], [3], [1]], [[3, 1, 0, 2]],
]  # fmt: skip


@pytest.mark.parametrize("groups", EQUAL_GROUPS, ids=str)
def test_axis_index_groups(groups: list[list[int]]) -> None:
    size = len(groups[0])

    def program(lib: Any, x: Any) -> Any:
        kw = {"axis_index_groups": groups}
        wide = jnp.tile(x, (size, 1))
        return (
            lib.psum(x, "x", **kw), lib.pmax(x, "x", **kw), lib.pmin(x, "x", **kw),
            lib.pmean(x, "x", **kw), lib.all_gather(x, "x", **kw),
            lib.all_gather(x, "x", axis=1, tiled=True, **kw),
            lib.psum_scatter(wide, "x", tiled=True, **kw), lib.psum(1, "x", **kw),
        )  # fmt: skip

    both(program, mesh_of(4), values(4, 3, 5))
    both(program, mesh_of(2, 4, names="yx"), values(8, 3, 5))


@pytest.mark.parametrize("groups", [[[0, 1, 2], [3]], [[3, 0], [1], [2]]], ids=str)
@pytest.mark.parametrize("reduction", ["psum", "pmax", "pmin"])
def test_unequal_axis_index_groups(groups: list[list[int]], reduction: str) -> None:
    def program(lib: Any, x: Any) -> Any:
        return getattr(lib, reduction)(x, "x", axis_index_groups=groups)

    both(program, mesh_of(4), values(4, 3, 5))
    mine = {i: group for group in groups for i in group}
    x = values(4, 3)
    product = per_rank(
        lambda x: pccl_jax.all_reduce(x, "x", op="prod", axis_index_groups=groups), mesh_of(4)
    )
    assert_same(product(x), np.stack([x[mine[i]].prod(0, dtype=x.dtype) for i in range(4)]))


@pytest.mark.parametrize("groups", [[[0, 1], [2, 3]], [[0, 3, 1], [2]]], ids=str)
def test_axis_index_groups_with_check_vma(groups: list[list[int]]) -> None:
    """Where lax refuses psum, and the result varies over the axis."""
    x = values(4, 3)
    mine = {i: group for group in groups for i in group}
    total = per_rank(
        lambda x: pccl_jax.psum(x, "x", axis_index_groups=groups), mesh_of(4), check_vma=True
    )
    assert_same(total(x), np.stack([x[mine[i]].sum(0, dtype=x.dtype) for i in range(4)]))


def test_pytrees() -> None:
    tree = {"a": values(4, 4, 2), "b": [values(4, 4).astype(np.float32), (values(4, 4) > 40,)]}

    def program(lib: Any, x: Any) -> Any:
        numbers = {"a": x["a"], "b": x["b"][:1]}
        return (
            lib.psum(x, "x"), lib.pmax(numbers, "x"), lib.pmean(x, "x"), lib.all_gather(x, "x"),
            lib.all_gather(x, "x", tiled=True), lib.psum_scatter(numbers, "x"),
            lib.psum((), "x"), lib.all_gather({"none": None}, "x"),
        )  # fmt: skip

    both(program, mesh_of(4), tree)


@pytest.mark.parametrize("check_vma", [False, True])
def test_what_is_not_an_array(check_vma: bool) -> None:
    """Python scalars and numpy constants, alone and beside arrays."""

    def program(lib: Any, x: Any) -> Any:
        const = np.arange(3.0, dtype=np.float32)
        return (
            lib.psum(1, "x"), lib.psum(2.5, "x"), lib.psum(True, "x"), lib.psum(const, "x"),
            lib.psum((x, 1, const), "x"), lib.pmean(3, "x"), lib.pmax(7, "x"),
            lib.pmin(const, "x"), lib.all_gather(5, "x"), lib.all_gather(const, "x", tiled=True),
            lib.psum_scatter(np.ones(4, np.int32), "x"), lib.psum(jnp.arange(4), "x"),
        )  # fmt: skip

    both(program, mesh_of(4), values(4, 3), check_vma=check_vma)


def test_a_size_from_psum_of_one_is_static() -> None:
    sizes = []
    per_rank(lambda x: sizes.append(pccl_jax.psum(1, "x")) or x, mesh_of(4))(values(4, 3))
    assert sizes == [4]
    assert isinstance(sizes[0], int)


def test_no_axes() -> None:
    both(
        lambda lib, x: (lib.psum(x, ()), lib.all_gather(x, ()), lib.psum_scatter(x, ())),
        mesh_of(2), values(2, 3),
    )  # fmt: skip


@pytest.mark.parametrize("axes", [*itertools.permutations("xyz")], ids=str)
def test_axes_of_one_rank(axes: tuple[str, ...]) -> None:
    both(lambda lib, x: collect(lib, x, axes), mesh_of(1, 3, 1), values(3, 2, 5))
