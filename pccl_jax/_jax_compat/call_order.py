"""Calls that keep the order in which they are traced, without a cost for each launch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax._src import core as _core
from jax._src import dispatch as _dispatch
from jax._src import effects as _effects
from jax._src import util as _util
from jax._src.interpreters import mlir as _mlir
from jax._src.interpreters import pxla as _pxla
from jax.extend.core import Primitive
from jax.interpreters import mlir

from pccl_jax._jax_compat.base import avals


def apply_eagerly(primitive: Any) -> Callable[..., Any]:
    """What runs ``primitive`` outside of jit: a program of its own."""
    return functools.partial(_dispatch.apply_primitive, primitive)


def program_devices(axis_context: Any) -> int:
    """Number of devices that the program which is lowered is for."""
    mesh = getattr(axis_context, "mesh", None)
    return int(axis_context.num_devices if mesh is None else mesh.size)


@dataclass(frozen=True)
class CallOrder(_effects.Effect):
    """The effect of equations that run in the order in which they are traced, and all of them.

    JAX orders effects by tokens that it leads through the program and all control flow in it.

    Attributes:
        key: equations of equal keys are ordered.
    """

    key: Any


for _allowed in (
    _effects.ordered_effects,
    _effects.shardable_ordered_effects,  # our own lowering says what to do instead
    _effects.lowerable_effects,
    _effects.control_flow_allowed_effects,
    _effects.custom_derivatives_allowed_effects,
    _effects.remat_allowed_effects,
):
    _allowed.add_type(CallOrder)


def ordered_ffi_call(
    ctx: mlir.LoweringRuleContext, target: str, order: CallOrder, x: Any, **attributes: Any
) -> Any:
    """Lowers to a call of the FFI target, of ``x`` and a token, that keeps the order."""
    operand, result = avals(ctx)
    call_ctx = ctx.replace(
        avals_in=[operand, _core.abstract_token], avals_out=[result, _core.abstract_token]
    )
    rule = jax.ffi.ffi_lowering(target, has_side_effect=True)
    out, token = rule(call_ctx, x, ctx.tokens_in.get(order), **attributes)
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(_mlir.TokenSet({order: token})))
    return [out]


def _lower_while(lower: Callable[..., Any]) -> Callable[..., Any]:
    """``lower``, but for a condition that makes calls and that vmap has given several answers.

    JAX (0.10 to 0.12) goes on with all elements of a batch there until the last is done.
    """

    def rule(ctx: mlir.LoweringRuleContext, *args: Any, **params: Any) -> Any:
        condition, body = (_core.jaxpr_as_fun(params[f"{name}_jaxpr"]) for name in ("cond", "body"))
        (answer,) = params["cond_jaxpr"].out_avals
        calls = any(isinstance(effect, CallOrder) for effect in params["cond_jaxpr"].effects)
        if not (calls and answer.shape):
            return lower(ctx, *args, **params)

        def loop(*args: Any) -> Any:
            of_condition, of_body, first = _util.split_list(
                args, [params["cond_nconsts"], params["body_nconsts"]]
            )

            def goes_on(carry: Sequence[Any]) -> Any:
                return condition(*of_condition, *carry)[0]

            def turn(state: Any) -> Any:
                going, carry = state
                after = body(*of_body, *carry)
                carry = [_where(going, new, old) for new, old in zip(after, carry, strict=True)]
                return goes_on(carry), carry

            start = (goes_on(first), list(first))
            return lax.while_loop(lambda state: state[0].any(), turn, start)[1]

        return mlir.lower_fun(loop)(ctx, *args)

    return rule


def _where(taken: Any, new: Any, old: Any) -> Any:
    """``new`` where ``taken`` says so, along the first dimensions."""
    return jnp.where(taken.reshape(taken.shape + (1,) * (new.ndim - taken.ndim)), new, old)


mlir.register_lowering(lax.while_p, _lower_while(_mlir._lowerings[lax.while_p].rule))


#: A whole program, whose call orders nobody outside can see.
_program_p = Primitive("pccl_ordered_program")
_program_p.multiple_results = True


def _program_type(*_: Any, program: Any) -> tuple[Any, Any]:
    others = {effect for effect in program.effects if not isinstance(effect, CallOrder)}
    return program.out_avals, others


_program_p.def_effectful_abstract_eval(_program_type)


def _lower_program(ctx: mlir.LoweringRuleContext, *args: Any, program: Any) -> Any:
    orders = [effect for effect in program.effects if isinstance(effect, CallOrder)]
    outer, fresh = ctx.tokens_in, _mlir.TokenSet.create(orders)
    inner = _mlir.TokenSet(dict([*outer.items(), *fresh.items()]))
    jaxpr = getattr(program, "jaxpr", program)  # jax 0.12 has one class for both
    consts = _mlir.ir_consts(program.consts, [v.aval for v in jaxpr.constvars])
    results, tokens = _mlir.jaxpr_subcomp(
        ctx.module_context,
        jaxpr,
        ctx.name_stack,
        inner,
        consts,
        *args,
        dim_var_values=ctx.dim_var_values,
        const_lowering=ctx.const_lowering,
        outer_traceback=ctx.traceback,
    )
    ctx.set_tokens_out(tokens.subset([effect for effect, _ in outer.items()]))
    return results


mlir.register_lowering(_program_p, _lower_program, cacheable=False)


@_util.weakref_lru_cache  # as JAX keeps lowerings
def _hiding_call_orders(program: Any) -> Any:
    """A program of one equation, which is ``program``."""
    program = program.replace()  # what refers to itself would never be forgotten
    return jax.make_jaxpr(lambda *args: _program_p.bind(*args, program=program))(*program.in_avals)


@functools.cache
def hide_call_orders() -> None:
    """Keeps call orders from JAX's dispatch.

    For ordered effects it leads tokens from launch to launch, which takes jit off its fast path
    (0.6 ms a call). Not needed on a CPU device: launches from one thread run there one after the
    other. In a process of several devices those on one would overtake those on another. There, and
    where JAX is another than we know, it does that, and results are the same.
    """
    lower = getattr(_pxla, "_cached_lowering_to_hlo", None)
    if lower is None:
        return

    @functools.wraps(lower)
    def lower_hiding(program: Any, *args: Any, **kwargs: Any) -> Any:
        effects = program.effects
        calls = any(isinstance(e, CallOrder) for e in effects)
        of_inputs = any(isinstance(e, _effects.JaxprInputEffect) for e in effects)
        if calls and not of_inputs and len(jax.local_devices(backend="cpu")) == 1:
            program = _hiding_call_orders(program)
        return lower(program, *args, **kwargs)

    setattr(_pxla, "_cached_lowering_to_hlo", lower_hiding)  # noqa: B010 (its type is narrower)
