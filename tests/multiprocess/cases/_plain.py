"""What the cases of ``comm=`` share: programs that each process runs for itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import numpy as np
from jax._src.interpreters.pxla import ExecuteReplicated
from mpi4py import MPI

WORLD = MPI.COMM_WORLD


def all_equal(got: Any, right: Any, what: str) -> None:
    """Both trees have the same leaves: shapes, types and numbers."""
    assert jax.tree.structure(got) == jax.tree.structure(right), what
    for (path, leaf), want in zip(
        jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(right), strict=True
    ):
        leaf, want = np.asarray(leaf), np.asarray(want)
        where = f"{what}{jax.tree_util.keystr(path)}"
        assert (leaf.shape, leaf.dtype) == (want.shape, want.dtype), (
            f"{where}: {leaf.dtype}{leaf.shape}, not {want.dtype}{want.shape}"
        )
        assert np.array_equal(leaf, want), f"{where}: {leaf.ravel()[:9]}, not {want.ravel()[:9]}"


def check(function: Callable[..., Any], x: Any, right: Any, unpack: bool = False) -> None:
    """The jitted function gives what it should; of a tuple of arguments where ``unpack``."""
    all_equal(jax.jit(function)(*x) if unpack else jax.jit(function)(x), right, str(function))


def off_fast_path(function: Callable[..., Any], *args: Any, calls: int = 5) -> int:
    """How many of the calls of a jitted function go through Python."""
    jax.block_until_ready(function(*args))
    with mock.patch.object(
        ExecuteReplicated, "__call__", autospec=True, side_effect=ExecuteReplicated.__call__
    ) as slow:
        for _ in range(calls):
            jax.block_until_ready(function(*args))
    return int(slow.call_count)
