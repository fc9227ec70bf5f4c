"""The primitive behind psum, pmax, pmin and all_reduce."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from pccl_jax._jax_compat import (
    Primitive,
    batching,
    check_vma,
    lax_collectives,
    lax_type_rule,
    lower_on,
    mlir,
    pvary,
    ungrouped_type,
)
from pccl_jax.primitives.common import (
    LoweringRule,
    define_linear,
    lower_as_lax,
    reduce_axis,
    reduce_equal,
)
from pccl_jax.primitives.lowering import Call, emit, make_plan
from pccl_jax.types import Collective, Op

#: Parameters: ``axes`` (names), ``axis_index_groups``, ``op``, ``invariant`` (whether the
#: result's type says that it is equal on all devices of ``axes``), ``algorithm``.
all_reduce_p = Primitive("pccl_all_reduce")

_LAX_NAME = {Op.SUM: "psum", Op.PROD: "pprod", Op.MAX: "pmax", Op.MIN: "pmin"}


def _type(
    x: Any, *, axes: Any, axis_index_groups: Any, op: Op, invariant: bool, algorithm: str | None
) -> tuple[Any, Any]:
    if check_vma() and axis_index_groups is not None:
        return ungrouped_type(x, axes)
    if op is Op.SUM and invariant:
        return lax_type_rule("psum_invariant", x, axes=axes)
    name = "psum" if op is Op.SUM else "pmax"
    return lax_type_rule(name, x, axes=axes, axis_index_groups=axis_index_groups)


def _transpose(ct: Any, x: Any, *, axes: Any, invariant: bool, **params: Any) -> tuple[Any]:
    if invariant:
        return (pvary(ct, axes),)
    return (all_reduce_p.bind(ct, axes=axes, invariant=False, **params),)


def _batch(
    axis_data: Any,
    values: Any,
    dims: Any,
    *,
    axes: Any,
    axis_index_groups: Any,
    op: Op,
    **params: Any,
) -> tuple[Any, Any]:
    (x,), (d,) = values, dims
    bind = partial(all_reduce_p.bind, op=op, axis_index_groups=axis_index_groups, **params)
    if axis_data.name not in axes:
        return bind(x, axes=axes), d
    if axis_index_groups is not None:
        raise NotImplementedError(
            "axis_index_groups over an axis of vmap; use shard_map for that axis"
        )
    x = reduce_equal(op, x, axis_data.size) if d is None else reduce_axis(op, x, d)
    rest = tuple(axis for axis in axes if axis != axis_data.name)
    return (bind(x, axes=rest) if rest else x), None


def _lax(x: Any, *, axes: Any, axis_index_groups: Any, op: Op, **_: Any) -> Any:
    if op is Op.PROD:
        return _product(x, axes, axis_index_groups)
    prim = lax_collectives[_LAX_NAME[op]]
    return prim.bind(x, axes=axes, axis_index_groups=axis_index_groups)


def _product(x: Any, axes: Any, groups: Any) -> Any:
    """What lax has no collective for; the gather cannot be in parts of different sizes."""
    if groups is None or len({len(group) for group in groups}) == 1:
        return reduce_axis(Op.PROD, lax.all_gather(x, axes, axis_index_groups=groups), 0)
    n = sum(len(group) for group in groups)
    together = np.zeros((n, n), bool)
    for group in groups:
        together[np.ix_(group, group)] = True
    mine = jnp.asarray(together)[lax.axis_index(axes)].reshape(n, *[1] * x.ndim)
    return reduce_axis(Op.PROD, jnp.where(mine, lax.all_gather(x, axes), jnp.ones_like(x)), 0)


def _lower_as_lax(ctx: mlir.LoweringRuleContext, x: Any, **params: Any) -> Any:
    return lower_as_lax(partial(_lax, **params), ctx, x)


def all_reduce_call(*, op: Op, axes: Any, axis_index_groups: Any, algorithm: Any, **_: Any) -> Call:
    """What the primitive's parameters ask for."""
    return Call(Collective.ALL_REDUCE, op, axes, axis_index_groups, algorithm)


def lower_all_reduce(
    ctx: mlir.LoweringRuleContext, x: Any, *, fallback: LoweringRule = _lower_as_lax, **params: Any
) -> Any:
    """The lowering rule; ``fallback`` lowers what is left to lax, from the same parameters."""
    call = all_reduce_call(**params)
    plan = make_plan(ctx, call)
    return fallback(ctx, x, **params) if plan is None else emit(ctx, x, call, plan)


all_reduce_p.def_effectful_abstract_eval(_type)
define_linear(all_reduce_p, _transpose, _LAX_NAME)
batching.fancy_primitive_batchers[all_reduce_p] = _batch
mlir.register_lowering(all_reduce_p, _lower_as_lax)
lower_on(all_reduce_p, "cpu", lower_all_reduce)
