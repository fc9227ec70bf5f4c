"""Meshes on some of the devices, and functions that every rank of a mesh runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import pccl_jax


def mesh_of(
    *shape: int, names: str | Sequence[str] = "xyz", order: Sequence[int] | None = None
) -> Mesh:
    """A mesh on the first devices; axes are called x, y, z; ``order`` permutes the devices."""
    devices = np.array(jax.devices()[: math.prod(shape)])
    if order is not None:
        devices = devices[list(order)]
    return Mesh(devices.reshape(shape), tuple(names[: len(shape)]))


def per_rank(
    function: Callable[..., Any], mesh: Mesh, *, check_vma: bool = False, jit: bool = True
) -> Callable[..., Any]:
    """``function`` on every rank: arguments and results get a first axis that counts ranks."""
    over_all = P(mesh.axis_names)

    def body(*args: Any) -> Any:
        result = function(*jax.tree.map(lambda a: a.reshape(a.shape[1:]), args))
        return jax.tree.map(lambda leaf: jax.numpy.asarray(leaf)[None], result)

    mapped = jax.shard_map(
        body, mesh=mesh, in_specs=over_all, out_specs=over_all, check_vma=check_vma
    )
    return jax.jit(mapped) if jit else mapped


def assert_same(actual: Any, expected: Any) -> None:
    """Same structure, shapes and dtypes, and every element equal; NaN equals NaN."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_array_equal(ours, theirs)


def algorithms(collective: str | None = None) -> tuple[str, ...]:
    """Those that one process can run."""
    return tuple(name for name in pccl_jax.algorithms(collective) if name != "mpi")
