"""The functions users call, with the contract of their namesakes in :mod:`jax.lax`.

Each takes a pytree. A leaf that needs no communication (a Python scalar, a constant) or has a
type that only lax handles (``unreduced``, ``reduced``) goes to lax.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from pccl_jax import schedule
from pccl_jax._jax_compat import (
    canonicalize_axis,
    check_vma,
    insert_varying,
    reduction_state,
    tracked_axes,
)
from pccl_jax.api import over_communicator
from pccl_jax.api.arguments import (
    AxisName,
    Groups,
    as_axes,
    as_equal_parts,
    as_operator,
    as_partition,
    check_operator,
    check_scatter_dimension,
    group_size,
    has_positions,
    is_for_lax,
    takes_comm,
)
from pccl_jax.dispatch import VENDOR_ALGORITHMS, check_algorithm
from pccl_jax.primitives import all_gather_p, all_reduce_p, reduce_scatter_p
from pccl_jax.types import Collective, Op

_LAX_ALL_REDUCE: dict[Op, Any] = {Op.SUM: lax.psum, Op.MAX: lax.pmax, Op.MIN: lax.pmin}
_LAX_NAMES = {op: function.__name__ for op, function in _LAX_ALL_REDUCE.items()}


def psum(
    x: Any,
    axis_name: AxisName = None,
    *,
    comm: Any = None,
    axis_index_groups: Groups = None,
    algorithm: str | None = None,
) -> Any:
    """All-reduce sum over ``axis_name``: ``[...] -> [...]``, equal on every rank of the group.

    As :func:`jax.lax.psum`. Booleans are counted (int32). With ``check_vma=True`` the result
    is typed as equal on all devices of the axis; together with ``axis_index_groups``, where lax
    refuses, as varying over it.

    Args:
        x: array, or pytree of arrays; any numeric dtype.
        axis_name: a mesh axis, or a tuple of axes.
        comm: in place of ``axis_name``, an mpi4py communicator whose processes each run a program
            of their own, on one device; see :mod:`pccl_jax.api.over_communicator`.
        axis_index_groups: partition of the axis indices; the sum is over each part.
        algorithm: a name in :func:`pccl_jax.algorithms`; None lets the dispatcher choose.

    Raises:
        NameError: for an axis that is not bound by an enclosing shard_map or vmap.
        TypeError: for ``comm`` beside ``axis_name``, neither, or a ``comm`` of another type.
        ValueError: where ``axis_index_groups`` is no partition, or for an unknown algorithm.

    Example:
        >>> import jax, jax.numpy as jnp, pccl_jax
        >>> mesh = jax.make_mesh((len(jax.devices()),), ("x",))
        >>> f = jax.shard_map(lambda x: pccl_jax.psum(x, "x"), mesh=mesh,
        ...                   in_specs=jax.P("x"), out_specs=jax.P())
        >>> n = len(jax.devices())
        >>> bool(jax.jit(f)(jnp.arange(n))[0] == n * (n - 1) // 2)
        True
    """
    return all_reduce(
        x,
        axis_name,
        op="sum",
        comm=comm,
        axis_index_groups=axis_index_groups,
        algorithm=algorithm,
    )


def pmean(
    x: Any,
    axis_name: AxisName = None,
    *,
    comm: Any = None,
    axis_index_groups: Groups = None,
    algorithm: str | None = None,
) -> Any:
    """All-reduce mean: the sum of :func:`psum` divided by the group's size, as lax computes it."""
    if takes_comm(axis_name, comm, axis_index_groups):
        return over_communicator.all_reduce(x, comm, "mean", algorithm)
    axes = as_axes(axis_name, "pmean")
    if has_positions(axes):
        return lax.pmean(x, axis_name, axis_index_groups=axis_index_groups)
    total = psum(x, axis_name, axis_index_groups=axis_index_groups, algorithm=algorithm)
    n = group_size(axes, as_partition(axis_index_groups, axes))
    return jax.tree.map(lambda leaf: leaf / n, total)


def pmax(
    x: Any,
    axis_name: AxisName = None,
    *,
    comm: Any = None,
    axis_index_groups: Groups = None,
    algorithm: str | None = None,
) -> Any:
    """All-reduce maximum over ``axis_name``; arguments as :func:`psum`. NaN wins."""
    return all_reduce(
        x,
        axis_name,
        op="max",
        comm=comm,
        axis_index_groups=axis_index_groups,
        algorithm=algorithm,
    )


def pmin(
    x: Any,
    axis_name: AxisName = None,
    *,
    comm: Any = None,
    axis_index_groups: Groups = None,
    algorithm: str | None = None,
) -> Any:
    """All-reduce minimum over ``axis_name``; arguments as :func:`psum`. NaN wins."""
    return all_reduce(
        x,
        axis_name,
        op="min",
        comm=comm,
        axis_index_groups=axis_index_groups,
        algorithm=algorithm,
    )


def all_reduce(
    x: Any,
    axis_name: AxisName = None,
    *,
    comm: Any = None,
    op: str = "sum",
    axis_index_groups: Groups = None,
    algorithm: str | None = None,
) -> Any:
    """All-reduce: ``[...] -> [...]``, the reduction over the group, equal on every rank.

    float16 and bfloat16 are accumulated in float32 within a reduction. Results are
    bit-identical on all ranks, and from run to run for a given algorithm and group.

    Args:
        x: array, or pytree of arrays.
        axis_name: a mesh axis, or a tuple of axes.
        comm: in place of ``axis_name``, as for :func:`psum`.
        op: ``sum``, ``prod``, ``max``, ``min`` or ``mean``; ``and`` or ``or`` for booleans.
        axis_index_groups: partition of the axis indices.
        algorithm: as for :func:`psum`.

    Raises:
        TypeError: for an operator that does not go with the dtype.
        ValueError, NameError: as for :func:`psum`.
    """
    if takes_comm(axis_name, comm, axis_index_groups):
        return over_communicator.all_reduce(x, comm, op, algorithm)
    if op == "mean":
        return pmean(x, axis_name, axis_index_groups=axis_index_groups, algorithm=algorithm)
    kind = as_operator(op)
    check_algorithm(algorithm, Collective.ALL_REDUCE)
    axes = tracked_axes(as_axes(axis_name, _LAX_NAMES.get(kind, "all_reduce")))
    if not axes:
        return x
    if has_positions(axes):
        if kind not in _LAX_ALL_REDUCE:
            raise ValueError(f"op {op!r} reduces over named axes only, got {axes}.")
        return _LAX_ALL_REDUCE[kind](x, axis_name, axis_index_groups=axis_index_groups)
    groups = as_partition(axis_index_groups, axes)

    def reduce(leaf: Any) -> Any:
        leaf = check_operator(leaf, op, kind)
        if kind in _LAX_ALL_REDUCE and is_for_lax(leaf):
            return _LAX_ALL_REDUCE[kind](leaf, axis_name, axis_index_groups=axis_index_groups)
        invariant = check_vma() and groups is None
        return all_reduce_p.bind(
            insert_varying(axes, leaf),
            axes=axes,
            axis_index_groups=groups,
            op=kind,
            invariant=invariant,
            algorithm=algorithm,
        )

    return jax.tree.map(reduce, x)


def all_gather(
    x: Any,
    axis_name: AxisName = None,
    *,
    comm: Any = None,
    axis_index_groups: Groups = None,
    axis: int = 0,
    tiled: bool = False,
    to: str = "varying",
    algorithm: str | None = None,
) -> Any:
    """All-gather: every rank gets the chunks of all ranks of its group.

    As :func:`jax.lax.all_gather`. ``tiled=False``: ``[a, b] -> [a, n, b]`` for ``axis=1`` and
    ``n`` ranks. ``tiled=True``: ``[a, b] -> [a, n * b]``.

    Args:
        x: array, or pytree of arrays; any dtype.
        axis_name: a mesh axis, or a tuple of axes.
        comm: in place of ``axis_name``, as for :func:`psum`.
        axis_index_groups: partition of the axis indices into parts of equal size.
        axis: where chunks are put together.
        tiled: concatenate along an existing dimension instead of stacking along a new one.
        to: type of the result; other than ``"varying"`` the call is lax's.
        algorithm: as for :func:`psum`.

    Raises:
        NameError: for an axis that is not bound.
        ValueError: where ``axis`` is out of range, for malformed groups or an unknown algorithm.

    Example:
        >>> import jax, jax.numpy as jnp, pccl_jax
        >>> n = len(jax.devices())
        >>> mesh = jax.make_mesh((n,), ("x",))
        >>> f = jax.shard_map(lambda x: pccl_jax.all_gather(x, "x", tiled=True), mesh=mesh,
        ...                   in_specs=jax.P("x"), out_specs=jax.P("x"))
        >>> jax.jit(f)(jnp.arange(2 * n)).shape == (2 * n * n,)
        True
    """
    if takes_comm(axis_name, comm, axis_index_groups):
        if to != "varying":
            raise ValueError(f"to={to!r} is a type over mesh axes; comm= has none.")
        return over_communicator.all_gather(x, comm, axis, tiled, algorithm)
    check_algorithm(algorithm, Collective.ALL_GATHER)
    axes = as_axes(axis_name, "all_gather")
    if not axes:
        return x
    if has_positions(axes):
        return lax.all_gather(x, axes, axis=axis, tiled=tiled, to=to)
    groups = as_equal_parts(axis_index_groups, axes)
    size = group_size(axes, groups)

    def gather(leaf: Any) -> Any:
        if to != "varying" or reduction_state(leaf):
            return lax.all_gather(
                leaf, axes, axis_index_groups=groups, axis=axis, tiled=tiled, to=to
            )
        ndim = np.ndim(leaf) + (0 if tiled else 1)
        return all_gather_p.bind(
            insert_varying(axes, leaf),
            all_gather_dimension=canonicalize_axis(axis, ndim),
            axis_name=axes,
            axis_index_groups=groups,
            axis_size=size,
            tiled=tiled,
            algorithm=algorithm,
        )

    return jax.tree.map(gather, x)


def psum_scatter(
    x: Any,
    axis_name: AxisName = None,
    *,
    comm: Any = None,
    scatter_dimension: int = 0,
    axis_index_groups: Groups = None,
    tiled: bool = False,
    algorithm: str | None = None,
) -> Any:
    """Reduce-scatter sum, as :func:`jax.lax.psum_scatter`; see :func:`reduce_scatter`."""
    return reduce_scatter(
        x,
        axis_name,
        op="sum",
        comm=comm,
        scatter_dimension=scatter_dimension,
        axis_index_groups=axis_index_groups,
        tiled=tiled,
        algorithm=algorithm,
    )


def reduce_scatter(
    x: Any,
    axis_name: AxisName = None,
    *,
    comm: Any = None,
    op: str = "sum",
    scatter_dimension: int = 0,
    axis_index_groups: Groups = None,
    tiled: bool = False,
    algorithm: str | None = None,
) -> Any:
    """Reduce-scatter: rank ``r`` gets chunk ``r`` of the reduction over its group.

    ``tiled=False``: ``[a, n, b] -> [a, b]`` for ``scatter_dimension=1`` and ``n`` ranks.
    ``tiled=True``: ``[a, n * b] -> [a, b]``.

    Args:
        x: array, or pytree of arrays.
        axis_name: a mesh axis, or a tuple of axes.
        comm: in place of ``axis_name``, as for :func:`psum`.
        op: as for :func:`all_reduce`.
        scatter_dimension: the dimension that is cut into chunks.
        axis_index_groups: partition of the axis indices into parts of equal size.
        tiled: keep the dimension, shorter, instead of dropping it.
        algorithm: as for :func:`psum`.

    Raises:
        TypeError: for an operator that does not go with the dtype.
        ValueError: where the dimension does not divide, for malformed groups or an unknown
            algorithm.
        NameError: for an axis that is not bound.
    """
    if takes_comm(axis_name, comm, axis_index_groups):
        return over_communicator.reduce_scatter(x, comm, op, scatter_dimension, tiled, algorithm)
    if op == "mean":
        total = psum_scatter(
            x,
            axis_name,
            scatter_dimension=scatter_dimension,
            axis_index_groups=axis_index_groups,
            tiled=tiled,
            algorithm=algorithm,
        )
        n = group_size(as_axes(axis_name, "reduce_scatter"), axis_index_groups)
        return jax.tree.map(lambda leaf: leaf / n, total)
    kind = as_operator(op)
    check_algorithm(algorithm, Collective.REDUCE_SCATTER)
    axes = tracked_axes(as_axes(axis_name, "reduce_scatter"))
    if not axes:
        return x
    if has_positions(axes):
        raise ValueError(f"a reduce_scatter is over named axes only, got {axes}.")
    groups = as_equal_parts(axis_index_groups, axes)
    size = group_size(axes, groups)

    def scatter(leaf: Any) -> Any:
        if kind is Op.SUM and reduction_state(leaf):
            return lax.psum_scatter(
                leaf,
                axes,
                scatter_dimension=scatter_dimension,
                axis_index_groups=groups,
                tiled=tiled,
            )
        leaf = check_operator(jnp.asarray(leaf), op, kind)
        return reduce_scatter_p.bind(
            insert_varying(axes, leaf),
            scatter_dimension=check_scatter_dimension(leaf, scatter_dimension, size, tiled),
            axis_name=axes,
            axis_index_groups=groups,
            axis_size=size,
            tiled=tiled,
            op=kind,
            algorithm=algorithm,
        )

    return jax.tree.map(scatter, x)


def algorithms(collective: str | None = None) -> tuple[str, ...]:
    """Names that ``algorithm=`` accepts; for one collective, e.g. ``"all_gather"``, if given."""
    kind = None if collective is None else Collective[collective.upper()]
    return (*schedule.names(kind), *VENDOR_ALGORITHMS)
