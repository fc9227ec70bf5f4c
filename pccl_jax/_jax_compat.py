"""Everything of JAX that has no public name, in one place: jax 0.10.2 to 0.12."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax._src import config as _config
from jax._src import core as _core
from jax._src import distributed as _distributed
from jax._src import xla_bridge as _xla_bridge
from jax._src.interpreters import pxla as _pxla
from jax._src.lax import parallel as _parallel
from jax._src.lib.mlir.dialects import hlo as _hlo  # type: ignore[attr-defined]
from jax._src.sharding_impls import SPMDAxisContext as _SPMDAxisContext
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

__all__ = [
    "Primitive",
    "ShapedArray",
    "ad",
    "avals",
    "backends_exist",
    "batching",
    "canonicalize_axis",
    "check_vma",
    "distributed_state",
    "insert_varying",
    "is_tracer",
    "lax_primitives",
    "lax_type_rule",
    "lowering_mesh",
    "mesh_axis_groups",
    "mlir",
    "new_call_number",
    "partition_id",
    "pvary",
    "reduction_state",
    "ungrouped_type",
]

ShapedArray = _core.ShapedArray

#: The primitives whose typing rules ours share and which a call falls back to.
lax_primitives = {
    "psum": _parallel.psum_p,
    "psum_invariant": _parallel.psum_invariant_p,
    "pmax": _parallel.pmax_p,
    "pmin": _parallel.pmin_p,
    "all_gather": _parallel.all_gather_p,
    "reduce_scatter": _parallel.reduce_scatter_p,
}


def lax_type_rule(name: str, aval: Any, **params: Any) -> tuple[Any, Any]:
    """Result type and effects of the lax primitive ``name`` on ``aval``."""
    return lax_primitives[name].abstract_eval(aval, **params)  # type: ignore[no-any-return]


def ungrouped_type(aval: Any, axes: Sequence[Any]) -> tuple[Any, Any]:
    """Type of a result that is like the operand and still varies over ``axes``."""
    return aval, {_core.NamedAxisEffect(axis) for axis in axes}


def check_vma() -> bool:
    """Whether the enclosing shard_map tracks over which axes values vary."""
    return bool(_config._check_vma.value)


def insert_varying(axes: tuple[Any, ...], x: Any) -> Any:
    """Casts ``x`` to vary over ``axes`` where types are tracked, as lax does implicitly."""
    return _parallel.insert_collective_pvary(axes, x)


def pvary(x: Any, axes: tuple[Any, ...]) -> Any:
    """Casts ``x``, which is equal on all devices of ``axes``, to a varying value."""
    return _core.pvary(x, axes)


def reduction_state(x: Any) -> bool:
    """Whether ``x`` has one of the types 'unreduced' or 'reduced', which lax alone handles."""
    mat = jax.typeof(x).manual_axis_type
    return bool(mat.unreduced or mat.reduced)


def is_tracer(x: Any) -> bool:
    """Whether ``x`` stands for a value that is known only when the program runs."""
    return isinstance(x, _core.Tracer)


def canonicalize_axis(axis: int, ndim: int) -> int:
    """``axis`` as a number from 0; raises ValueError where it is out of range."""
    from jax._src.util import canonicalize_axis as canonicalize

    return int(canonicalize(axis, ndim))


def avals(ctx: mlir.LoweringRuleContext) -> tuple[Any, Any]:
    """Types of the one operand and the one result."""
    return ctx.avals_in[0], ctx.avals_out[0]


def lowering_mesh(ctx: mlir.LoweringRuleContext) -> Any | None:
    """The mesh whose axes are all manual where ``ctx`` lowers, else None."""
    axis_context = ctx.module_context.axis_context
    if not isinstance(axis_context, _SPMDAxisContext):
        return None
    mesh = axis_context.mesh
    return mesh if set(mesh.axis_names) <= set(axis_context.manual_axes) else None


def mesh_axis_groups(ctx: mlir.LoweringRuleContext, axes: tuple[Any, ...]) -> list[list[int]]:
    """Logical device ids of every group of the collective over ``axes``, in axis order."""
    groups = _pxla.axis_groups(ctx.module_context.axis_context, axes)
    return [[int(device) for device in group] for group in groups]


def new_call_number(ctx: mlir.LoweringRuleContext) -> tuple[str, int]:
    """Name of the module and a number that no other call in it has; alike in every process."""
    module = ctx.module_context
    name = module.module.operation.attributes["sym_name"]
    return str(name).strip('"'), int(next(module.channel_iterator))


def distributed_state() -> tuple[int, int] | None:
    """This process's number and the number of processes, if jax.distributed was initialised."""
    state = _distributed.global_state
    if state.client is None:
        return None
    return int(state.process_id), int(state.num_processes)


def backends_exist() -> bool:
    """Whether some code has used a device already, after which jax.distributed cannot start."""
    return bool(_xla_bridge.backends_are_initialized())


def partition_id() -> Any:
    """The op whose result is the logical id of the device that runs the program."""
    return _hlo.partition_id()
