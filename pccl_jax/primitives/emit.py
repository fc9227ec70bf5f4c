"""From a plan to an FFI call: its operands, results and attributes, for each platform."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import jax
import numpy as np

from pccl_jax import schedule
from pccl_jax._jax_compat import (
    CallOrder,
    ShapedArray,
    avals,
    mlir,
    new_call_number,
    ordered_ffi_call,
    partition_id,
)
from pccl_jax.dispatch import Choice
from pccl_jax.primitives.gpu import emit_gpu
from pccl_jax.primitives.lowering import Call, Plan
from pccl_jax.runtime import ORDERED_TARGET, TARGET, register_handlers
from pccl_jax.types import Collective

Attributes = dict[str, Any]


def emit(ctx: mlir.LoweringRuleContext, x: Any, call: Call, plan: Plan) -> Any:
    """Emits the FFI call of ``plan`` for its platform."""
    platform = plan.site.platform
    register_handlers(platform)
    attributes = _attributes(ctx, call, plan)
    if platform == "cpu":
        return _emit_cpu(ctx, x, call, attributes)
    devices = np.array(plan.places.device_of, np.int64)
    return emit_gpu(ctx, x, plan, attributes | {"devices": devices})


def _emit_cpu(ctx: mlir.LoweringRuleContext, x: Any, call: Call, attributes: Attributes) -> Any:
    """Over mesh axes the rank operand is the partition id: right under any mesh.

    Over a communicator the process is the rank, and the call keeps its place among those on the
    communicator.
    """
    attributes |= {"world": np.int64(0 if call.world is None else call.world.number)}
    if call.communicator is not None:
        order = CallOrder(call.communicator)
        return ordered_ffi_call(ctx, ORDERED_TARGET, order, x, **attributes)
    rank_aval = ShapedArray((), np.dtype(np.uint32))
    call_ctx = ctx.replace(avals_in=[avals(ctx)[0], rank_aval])
    return jax.ffi.ffi_lowering(TARGET)(call_ctx, x, partition_id(), **attributes)


def _attributes(ctx: mlir.LoweringRuleContext, call: Call, plan: Plan) -> Attributes:
    members, process_of = plan.layout.members, plan.places.process_of
    return {
        "collective": np.int64(call.collective),
        "op": np.int64(call.op),
        "program": schedule.encode(plan.schedule),
        "members": _flat(members),
        "places": _flat(plan.layout.places),
        "processes": _flat([[process_of[device] for device in group] for group in members]),
        "rows": np.int64(math.prod(plan.site.operand.shape[: call.dimension])),
        "label": _label(call, plan.choice),
        "algorithm": plan.choice.algorithm,
        "site": _site_id(ctx),
    }


def _flat(groups: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(groups, np.int64).reshape(-1)


def _label(call: Call, choice: Choice) -> str:
    """The call in words; processes whose calls read differently do not belong together."""
    op = "" if call.collective is Collective.ALL_GATHER else f" ({call.op.name.lower()})"
    operand = f"{choice.dtype}[{','.join(map(str, choice.shape))}]"
    return f"{call.collective.label}{op} of {operand} over {choice.request.over}"


def _site_id(ctx: mlir.LoweringRuleContext) -> np.int64:
    """A number of the call that every process computes alike, whatever it passes there."""
    text = repr(new_call_number(ctx))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return np.int64(int.from_bytes(digest, "little", signed=True))
