"""The primitive behind all_gather."""

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
from pccl_jax.primitives.common import (
    LoweringRule,
    define_linear,
    for_transpose,
    lower_as_lax,
    lower_python,
)
from pccl_jax.primitives.lowering import Call, emit, make_plan, wants_dimension_first
from pccl_jax.types import Collective, Op

#: Parameters: those of lax's all_gather, and ``algorithm``.
all_gather_p = Primitive("pccl_all_gather")


def _type(x: Any, *, algorithm: str | None, **params: Any) -> tuple[Any, Any]:
    return lax_type_rule("all_gather", x, **params)


def _transpose(
    ct: Any, x: Any, *, all_gather_dimension: int, algorithm: str | None, **params: Any
) -> tuple[Any]:
    from pccl_jax.primitives.reduce_scatter import reduce_scatter_p

    algorithm = for_transpose(algorithm, Collective.REDUCE_SCATTER)
    return (
        reduce_scatter_p.bind(
            ct, scatter_dimension=all_gather_dimension, op=Op.SUM, algorithm=algorithm, **params
        ),
    )


def _batch(
    axis_data: Any,
    values: Any,
    dims: Any,
    *,
    all_gather_dimension: int,
    axis_name: Any,
    axis_index_groups: Any,
    axis_size: int,
    tiled: bool,
    algorithm: str | None,
) -> tuple[Any, Any]:
    (x,), (d,) = values, dims
    if axis_data.name in axis_name:
        if axis_index_groups is not None or len(axis_name) > 1:
            raise NotImplementedError(
                "all_gather over an axis of vmap together with other axes or axis_index_groups; "
                "use shard_map for that axis"
            )
        return _gather_mapped_axis(x, d, all_gather_dimension, axis_size, tiled), None
    if d is not None:
        if d <= all_gather_dimension:
            all_gather_dimension += 1
        elif not tiled:
            d += 1
    out = all_gather_p.bind(
        x,
        all_gather_dimension=all_gather_dimension,
        axis_name=axis_name,
        axis_index_groups=axis_index_groups,
        axis_size=axis_size,
        tiled=tiled,
        algorithm=algorithm,
    )
    return out, d


def _gather_mapped_axis(x: Any, d: int | None, dimension: int, size: int, tiled: bool) -> Any:
    if d is None:
        x = jnp.broadcast_to(x, (size, *x.shape))
        d = 0
    x = jnp.moveaxis(x, d, dimension)
    if not tiled:
        return x
    shape = (*x.shape[:dimension], size * x.shape[dimension + 1], *x.shape[dimension + 2 :])
    return x.reshape(shape)


def _lax(x: Any, *, algorithm: str | None, **params: Any) -> Any:
    return lax_collectives["all_gather"].bind(x, **params)


def _lower_as_lax(ctx: mlir.LoweringRuleContext, x: Any, **params: Any) -> Any:
    return lower_as_lax(partial(_lax, **params), ctx, x)


def _gather_then_transpose(x: Any, *, all_gather_dimension: int, **params: Any) -> Any:
    tiled = params.pop("tiled")
    x = all_gather_p.bind(x, all_gather_dimension=0, tiled=False, **params)
    x = jnp.moveaxis(x, 0, all_gather_dimension)
    if not tiled:
        return x
    d = all_gather_dimension
    return lax.collapse(x, d, d + 2)


def all_gather_call(
    *, axis_name: Any, axis_index_groups: Any, algorithm: Any, all_gather_dimension: int, **_: Any
) -> Call:
    """What the primitive's parameters ask for."""
    return Call(
        Collective.ALL_GATHER, Op.SUM, axis_name, axis_index_groups, algorithm, all_gather_dimension
    )


def lower_all_gather(
    ctx: mlir.LoweringRuleContext, x: Any, *, fallback: LoweringRule = _lower_as_lax, **params: Any
) -> Any:
    """The lowering rule; ``fallback`` lowers what is left to lax, from the same parameters."""
    call = all_gather_call(**params)
    if wants_dimension_first(ctx, call, 1):
        return lower_python(partial(_gather_then_transpose, **params), ctx, x)
    plan = make_plan(ctx, call)
    return fallback(ctx, x, **params) if plan is None else emit(ctx, x, call, plan)


all_gather_p.def_effectful_abstract_eval(_type)
define_linear(all_gather_p, _transpose, {})
batching.fancy_primitive_batchers[all_gather_p] = _batch
mlir.register_lowering(all_gather_p, _lower_as_lax)
lower_on(all_gather_p, "cpu", lower_all_gather)
