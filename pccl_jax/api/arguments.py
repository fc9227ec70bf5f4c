"""Checks the arguments of the public functions and brings them into one form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from pccl_jax._jax_compat import canonicalize_axis, is_tracer, reduction_state
from pccl_jax.types import Op

AxisName = Any
Groups = Sequence[Sequence[int]] | None

#: Reduction operators by the name users give them.
OPERATORS = {op.name.lower(): op for op in Op} | {"and": Op.MIN, "or": Op.MAX}


def takes_comm(axis_name: AxisName, comm: Any, groups: Groups) -> bool:
    """Whether the call is over a communicator; raises TypeError for both or neither."""
    if comm is None and axis_name is None:
        raise TypeError("pass axis_name, a mesh axis, or comm, a communicator of mpi4py.")
    if comm is None:
        return False
    if axis_name is not None:
        raise TypeError(f"pass axis_name or comm, not both; got {axis_name!r} and {comm!r}.")
    if groups is not None:
        raise ValueError("axis_index_groups is for mesh axes; make a communicator by comm.Split().")
    return True


def as_axes(axis_name: AxisName, function: str) -> tuple[Any, ...]:
    """The axes as a tuple; raises NameError for one that is not bound, in lax's words and more.

    TypeError where it cannot be a name.
    """
    axes = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    for axis in axes:
        if isinstance(axis, int):
            continue
        try:
            lax.axis_size(axis)
        except NameError:
            raise NameError(
                f"Found an unbound axis name: {axis}. To fix this, please call {function} under "
                "`jax.shard_map` over a mesh that has this axis, or under "
                f"`jax.vmap(..., axis_name={axis!r})`."
            ) from None
        except TypeError:  # it cannot be a name
            raise TypeError(
                f"axis_name must be a mesh axis or a tuple of mesh axes, got {axis!r} of type "
                f"{type(axis).__name__}; a communicator of mpi4py is passed as comm=."
            ) from None
    return axes


def has_positions(axes: tuple[Any, ...]) -> bool:
    """Whether lax alone handles ``axes``: some are dimensions of the array, by number."""
    return any(isinstance(axis, int) for axis in axes)


def as_partition(groups: Groups, axes: tuple[Any, ...]) -> tuple[tuple[int, ...], ...] | None:
    """``axis_index_groups`` as tuples; raises ValueError where it is no partition of the axis."""
    if groups is None:
        return None
    parts = tuple(tuple(int(i) for i in group) for group in groups)
    size = int(lax.axis_size(axes))
    if sorted(i for part in parts for i in part) != list(range(size)):
        raise ValueError(
            f"axis_index_groups must cover all {size} indices of axis "
            f"{axes[0] if len(axes) == 1 else axes!r} exactly once, got {list(map(list, parts))}."
        )
    return parts


def as_equal_parts(groups: Groups, axes: tuple[Any, ...]) -> tuple[tuple[int, ...], ...] | None:
    """As :func:`as_partition`; raises ValueError where the parts differ in size."""
    parts = as_partition(groups, axes)
    if parts is not None and len({len(part) for part in parts}) > 1:
        raise ValueError(
            "axis_index_groups of an all_gather or reduce_scatter must all have the same size, "
            f"got sizes {[len(part) for part in parts]}; the shape of the result depends on it."
        )
    return parts


def group_size(axes: tuple[Any, ...], groups: Groups) -> int:
    """Number of ranks that take part together."""
    return int(lax.axis_size(axes)) if groups is None else len(groups[0])


def as_operator(op: str) -> Op:
    """The operator of that name; raises ValueError where there is none."""
    if op not in OPERATORS:
        raise ValueError(f"unknown op {op!r}; expected one of {', '.join([*OPERATORS, 'mean'])}.")
    return OPERATORS[op]


def check_operator(leaf: Any, op: str, kind: Op) -> Any:
    """The leaf as lax reduces it: booleans are counted by a sum."""
    dtype = jax.dtypes.result_type(leaf)
    if op in ("and", "or") and dtype != np.bool_:
        raise TypeError(f"op {op!r} is for booleans, got {dtype}; use 'min' or 'max'.")
    if kind is Op.SUM and dtype == np.bool_:
        return lax.convert_element_type(leaf, np.int32)
    return leaf


def is_for_lax(leaf: Any) -> bool:
    """Whether lax needs no communication for it, or alone knows its type."""
    return not is_tracer(leaf) or reduction_state(leaf)


def check_scatter_dimension(leaf: Any, dimension: int, size: int, tiled: bool) -> int:
    """The dimension from 0; raises ValueError where it cannot be cut into ``size`` chunks."""
    dimension = canonicalize_axis(dimension, leaf.ndim)
    length = leaf.shape[dimension]
    if tiled and length % size:
        raise ValueError(
            f"tiled reduce_scatter operand scatter dimension size {length} must be divisible by "
            f"shard_count {size}: operand {leaf.shape}, dimension {dimension}; pad it to "
            f"{-(-length // size) * size}."
        )
    if not tiled and length != size:
        raise ValueError(
            f"reduce_scatter operand scatter dimension size {length} must match shard count "
            f"{size}: operand {leaf.shape}, dimension {dimension}; pass tiled=True to keep the "
            "dimension and cut it into equal chunks."
        )
    return dimension
