"""Lowering for one platform or another, and the devices of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax._src import dispatch as _dispatch
from jax._src import effects as _effects
from jax._src import mesh as _mesh
from jax._src.interpreters import mlir as _mlir
from jax.experimental import compute_on as _compute_on
from jax.interpreters import mlir

from pccl_jax._jax_compat.base import lower_within, manual_mesh


def requires_devices(primitive: Any) -> None:
    """Has JAX lower programs with ``primitive`` anew for every order of devices.

    Otherwise one that takes its mesh from ``jax.set_mesh`` is lowered once for all of a shape. In
    return JAX refuses to lower such a program without any devices.
    """
    _dispatch.prim_requires_devices_during_lowering.add(primitive)


def devices_fixed(primitive: Any, axis_context: Any) -> bool:
    """Whether what ``primitive`` is lowered to now is used for the devices of its mesh only."""
    if primitive in _dispatch.prim_requires_devices_during_lowering:
        return True
    mesh = manual_mesh(axis_context)
    return isinstance(mesh, jax.sharding.Mesh) and _mesh.get_concrete_mesh().empty


def platform_of(device: Any) -> str:
    """By which JAX looks up lowering rules: ``cpu``, ``cuda``, ``rocm`` or ``tpu``."""
    client = device.client
    return str(getattr(client, "_raw_platform", client.platform))


def in_description(device: Any) -> bool:
    """Whether a device is of ``jax.experimental.topologies``: to compile for, not to run on."""
    return str(getattr(device.client, "runtime_type", "")) == "compile_only_runtime"


def on_collective_stream(
    ctx: mlir.LoweringRuleContext, function: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """``function`` on a GPU stream of its own, which XLA's scheduler overlaps with other work.

    That takes a computation of its own, whose temporaries live until it is done. Of a custom call
    with several results that bears the annotation itself, XLA overlaps no more than the extraction
    of the results. Before jax 0.12 XLA waits for the computation at once, so the function is as is.
    """
    said = None if ctx.jaxpr_eqn_ctx is None else ctx.jaxpr_eqn_ctx.compute_type
    if jax.__version_info__ < (0, 12) or said:  # the program has put the call on a stream already
        return function
    compute_on: Any = _compute_on.compute_on  # of other arguments before jax 0.12
    wrapped: Callable[[Any], Any] = compute_on(
        function,
        compute_type="gpu_stream:collective",
        out_memory_spaces=jax.memory.Space.Device,
    )
    return wrapped


def lowering_rule(primitive: Any, platform: str) -> Callable[..., Any]:
    """The rule that lowers ``primitive`` on ``platform``."""
    specific = _mlir._platform_specific_lowerings[platform].get(primitive)
    rule: Callable[..., Any] = (specific or _mlir._lowerings[primitive]).rule
    return rule


def lower_on(primitive: Any, rules: Mapping[str, Callable[..., Any]]) -> None:
    """Has ``rules``, by platform, lower ``primitive``, each call anew; elsewhere what did so far.

    JAX (0.10 to 0.12) fails where a program is lowered for several platforms at once and has a
    primitive that is not cached and has several rules. So it gets one, which asks for the platform.
    """
    others = _mlir._lowerings[primitive].rule
    specific = _mlir._platform_specific_lowerings
    all_rules = {
        name: table.pop(primitive).rule for name, table in specific.items() if primitive in table
    }
    all_rules |= rules

    def lower(ctx: mlir.LoweringRuleContext, *args: Any, **params: Any) -> Any:
        def by_platform(ctx: mlir.LoweringRuleContext) -> Any:
            return _mlir.lower_per_platform(
                ctx, str(primitive), all_rules, others, _effects.no_effects, *args, **params
            )

        # JAX appends to the list.
        return lower_within(ctx, by_platform, avals_out=list(ctx.avals_out))

    mlir.register_lowering(primitive, lower, cacheable=False)
