"""The primitive behind psum_scatter and reduce_scatter."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from pccl_jax._jax_compat import (
    Primitive,
    batching,
    lax_collectives,
    lax_type_rule,
    lower_on,
    mlir,
)
from pccl_jax.primitives.all_gather import all_gather_p
from pccl_jax.primitives.common import (
    LoweringRule,
    define_linear,
    for_transpose,
    lower_as_lax,
    lower_python,
    reduce_axis,
    reduce_equal,
)
from pccl_jax.primitives.lowering import Call, emit, make_plan, wants_dimension_first
from pccl_jax.types import Collective, Op

#: Parameters: those of lax's reduce_scatter, ``op`` and ``algorithm``.
reduce_scatter_p = Primitive("pccl_reduce_scatter")


def _type(x: Any, *, op: Op, algorithm: str | None, **params: Any) -> tuple[Any, Any]:
    return lax_type_rule("reduce_scatter", x, **params)


def _transpose(
    ct: Any, x: Any, *, scatter_dimension: int, op: Op, algorithm: str | None, **params: Any
) -> tuple[Any]:
    algorithm = for_transpose(algorithm, Collective.ALL_GATHER)
    return (
        all_gather_p.bind(
            ct, all_gather_dimension=scatter_dimension, algorithm=algorithm, **params
        ),
    )


def _batch(
    axis_data: Any,
    values: Any,
    dims: Any,
    *,
    scatter_dimension: int,
    axis_name: Any,
    axis_index_groups: Any,
    axis_size: int,
    tiled: bool,
    op: Op,
    algorithm: str | None,
) -> tuple[Any, Any]:
    (x,), (d,) = values, dims
    if axis_data.name in axis_name:
        if axis_index_groups is not None or len(axis_name) > 1:
            raise NotImplementedError(
                "reduce_scatter over an axis of vmap together with other axes or "
                "axis_index_groups; use shard_map for that axis"
            )
        x = reduce_equal(op, x, axis_size) if d is None else reduce_axis(op, x, d)
        return (_split(x, scatter_dimension, axis_size) if tiled else x), scatter_dimension
    out_dim = d
    if d is not None:
        if d <= scatter_dimension:
            scatter_dimension += 1
        elif not tiled:  # the scattered dimension goes, what came after it moves down
            out_dim = d - 1
    out = reduce_scatter_p.bind(
        x,
        scatter_dimension=scatter_dimension,
        axis_name=axis_name,
        axis_index_groups=axis_index_groups,
        axis_size=axis_size,
        tiled=tiled,
        op=op,
        algorithm=algorithm,
    )
    return out, out_dim


def _split(x: Any, dimension: int, parts: int) -> Any:
    """Splits a dimension into ``parts`` and what is left of it."""
    return x.reshape(
        *x.shape[:dimension], parts, x.shape[dimension] // parts, *x.shape[dimension + 1 :]
    )


def _lax(x: Any, *, op: Op, algorithm: str | None, **params: Any) -> Any:
    if op is Op.SUM:
        return lax_collectives["reduce_scatter"].bind(x, **params)
    d = params["scatter_dimension"]
    blocks = _split(x, d, params["axis_size"]) if params["tiled"] else x
    theirs = lax.all_to_all(
        blocks,
        params["axis_name"],
        d,
        d,
        axis_index_groups=params["axis_index_groups"],
        tiled=True,
    )
    return reduce_axis(op, theirs, d)


def _lower_as_lax(ctx: mlir.LoweringRuleContext, x: Any, **params: Any) -> Any:
    return lower_as_lax(partial(_lax, **params), ctx, x)


def _transpose_then_scatter(x: Any, *, scatter_dimension: int, **params: Any) -> Any:
    if params.pop("tiled"):
        x = _split(x, scatter_dimension, params["axis_size"])
    x = jnp.moveaxis(x, scatter_dimension, 0)
    return reduce_scatter_p.bind(x, scatter_dimension=0, tiled=False, **params)


def reduce_scatter_call(
    *,
    op: Op,
    axis_name: Any,
    axis_index_groups: Any,
    algorithm: Any,
    scatter_dimension: int,
    **_: Any,
) -> Call:
    """What the primitive's parameters ask for."""
    return Call(
        Collective.REDUCE_SCATTER, op, axis_name, axis_index_groups, algorithm, scatter_dimension
    )


def lower_reduce_scatter(
    ctx: mlir.LoweringRuleContext, x: Any, *, fallback: LoweringRule = _lower_as_lax, **params: Any
) -> Any:
    """The lowering rule; ``fallback`` lowers what is left to lax, from the same parameters."""
    call = reduce_scatter_call(**params)
    if wants_dimension_first(ctx, call, params["axis_size"]):
        return lower_python(partial(_transpose_then_scatter, **params), ctx, x)
    plan = make_plan(ctx, call)
    return fallback(ctx, x, **params) if plan is None else emit(ctx, x, call, plan)


reduce_scatter_p.def_effectful_abstract_eval(_type)
define_linear(reduce_scatter_p, _transpose, {Op.MAX: "pmax_scatter", Op.MIN: "pmin_scatter"})
batching.fancy_primitive_batchers[reduce_scatter_p] = _batch
mlir.register_lowering(reduce_scatter_p, _lower_as_lax)
lower_on(reduce_scatter_p, "cpu", lower_reduce_scatter)
