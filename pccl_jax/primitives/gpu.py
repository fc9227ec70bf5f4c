"""The FFI call on a GPU, and how it is wrapped."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from pccl_jax._jax_compat import avals, mlir, on_collective_stream
from pccl_jax.primitives.common import lower_python
from pccl_jax.primitives.lowering import Plan
from pccl_jax.runtime import TARGET
from pccl_jax.schedule import gpu_scratch_bytes


def emit_gpu(
    ctx: mlir.LoweringRuleContext, x: Any, plan: Plan, attributes: dict[str, Any]
) -> list[Any]:
    """Emits the call. It has no rank operand, which the host would have to wait for.

    Scratch is a result, so that it lives as long as the call is on its stream.
    """
    aval, result = avals(ctx)
    scratch = gpu_scratch_bytes(plan.schedule, _nbytes(aval), _nbytes(result))
    types = [
        jax.ShapeDtypeStruct(result.shape, result.dtype),
        jax.ShapeDtypeStruct((scratch,), np.uint8),
    ]

    def without_scratch(x: Any) -> Any:
        return jax.ffi.ffi_call(TARGET, types)(x, **attributes)[0]

    return lower_python(on_collective_stream(ctx, without_scratch), ctx, x)  # type: ignore[no-any-return]


def _nbytes(aval: Any) -> int:
    return int(math.prod(aval.shape) * aval.dtype.itemsize)
