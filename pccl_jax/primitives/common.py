"""What the rules of the three primitives share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import jax.numpy as jnp

from pccl_jax._jax_compat import (
    Primitive,
    ad,
    lower_on,
    lower_within,
    mlir,
    per_device,
    requires_devices,
)
from pccl_jax.dispatch import serves
from pccl_jax.runtime import MODULES, has_gpu_module
from pccl_jax.types import Collective, Op

LoweringRule = Callable[..., Any]

_LEFT_TO_LAX: ContextVar[bool] = ContextVar("left_to_lax", default=False)


def reduce_axis(op: Op, x: Any, axis: int | tuple[int, ...]) -> Any:
    """Reduces one axis of ``x``, or several, without changing its dtype."""
    if op in (Op.SUM, Op.PROD):
        reduce = jnp.sum if op is Op.SUM else jnp.prod
        return reduce(x, axis=axis, dtype=x.dtype)
    return (jnp.max if op is Op.MAX else jnp.min)(x, axis=axis)


def reduce_equal(op: Op, x: Any, n: int) -> Any:
    """The reduction of ``n`` copies of ``x``."""
    if op in (Op.SUM, Op.PROD):
        return (n * x if op is Op.SUM else x**n).astype(x.dtype)
    return x


def for_transpose(algorithm: str | None, collective: Collective) -> str | None:
    """The algorithm a call asked for, for the other collective its transpose needs."""
    return algorithm if algorithm is not None and serves(algorithm, collective) else None


def define_linear(
    primitive: Primitive, transpose: Callable[..., Any], lax_names: dict[Op, str]
) -> None:
    """Gives a primitive that is linear for SUM its JVP and transpose.

    Other operators raise what lax raises for its own, under the name in ``lax_names``.
    """
    ad.deflinear2(primitive, transpose)
    linear_jvp = ad.primitive_jvps[primitive]

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        op = params.get("op", Op.SUM)
        if op is not Op.SUM:
            raise NotImplementedError(
                f"Differentiation rule for '{lax_names.get(op, primitive.name)}' not implemented"
                f" (operator {op.name.lower()}); stop the gradient or differentiate a sum."
            )
        return linear_jvp(primals, tangents, **params)

    ad.primitive_jvps[primitive] = jvp


def register_rules(primitive: Primitive, rule: LoweringRule, as_lax: LoweringRule) -> None:
    """Lowers by ``rule`` on the platforms that we serve, as lax does on others.

    On GPUs a call names devices, unlike on CPU, so that each order of them needs its own.
    """
    if has_gpu_module():
        requires_devices(primitive)
    mlir.register_lowering(primitive, as_lax)
    lower_on(primitive, {platform: partial(rule, platform=platform) for platform in MODULES})


def lower_python(function: Callable[..., Any], ctx: mlir.LoweringRuleContext, x: Any) -> Any:
    """Lowers ``function(x)``, one result, in place of the primitive that ``ctx`` lowers."""
    result = ctx.avals_out[0]
    if 0 in result.shape:  # nothing to move, and lax refuses some of these
        return mlir.lower_fun(lambda _: jnp.zeros(result.shape, result.dtype), False)(ctx, x)
    rule = mlir.lower_fun(function, multiple_results=False)
    return lower_within(ctx, rule, x, avals_in=[per_device(ctx.avals_in[0])])


def lower_as_lax(function: Callable[..., Any], ctx: mlir.LoweringRuleContext, x: Any) -> Any:
    """As :func:`lower_python`, for a function whose lax collectives are to stay lax's."""
    token = _LEFT_TO_LAX.set(True)
    try:
        return lower_python(function, ctx, x)
    finally:
        _LEFT_TO_LAX.reset(token)


def left_to_lax() -> bool:
    """Whether what is lowered now has been left to lax by one of our own rules."""
    return _LEFT_TO_LAX.get()
