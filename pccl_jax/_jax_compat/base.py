"""Types, meshes, control and what is traced, as JAX has them inside."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax._src import config as _config
from jax._src import core as _core
from jax._src import distributed as _distributed
from jax._src import source_info_util as _source_info_util
from jax._src import xla_bridge as _xla_bridge
from jax._src import xla_metadata_lib as _xla_metadata_lib
from jax._src.interpreters import mlir as _mlir
from jax._src.interpreters import partial_eval as _pe
from jax._src.interpreters import pxla as _pxla
from jax._src.lax import parallel as _parallel
from jax._src.lib.mlir.dialects import hlo as _hlo  # type: ignore[attr-defined]
from jax._src.sharding_impls import SPMDAxisContext as _SPMDAxisContext
from jax._src.util import canonicalize_axis as _canonicalize_axis
from jax.interpreters import mlir

ShapedArray = _core.ShapedArray

#: Every collective primitive of lax, by name: those that users call and those that JAX puts in
#: their place for a type (``..._invariant``, ``..._reduced``, ``unreduced_...``).
lax_collectives: dict[str, Any] = {
    name: getattr(_parallel, f"{name}_p")
    for name in (
        "psum",
        "psum_invariant",
        "unreduced_psum",
        "pmax",
        "pmin",
        "unreduced_pmax",
        "unreduced_pmin",
        "all_gather",
        "all_gather_invariant",
        "all_gather_reduced",
        "reduce_scatter",
        "unreduced_reduce_scatter",
        "ppermute",
        "pbroadcast",
        "all_to_all",
        "ragged_all_to_all",
    )
    if hasattr(_parallel, f"{name}_p")
}


def lax_type_rule(name: str, aval: Any, **params: Any) -> tuple[Any, Any]:
    """Result type and effects of the lax primitive ``name`` on ``aval``."""
    return lax_collectives[name].abstract_eval(aval, **params)  # type: ignore[no-any-return]


def ungrouped_type(aval: Any, axes: Sequence[Any]) -> tuple[Any, Any]:
    """Type of a result that is like the operand and still varies over ``axes``."""
    return aval, {_core.NamedAxisEffect(axis) for axis in axes}


def check_vma() -> bool:
    """Whether the enclosing shard_map tracks over which axes values vary."""
    return bool(_config._check_vma.value)


def insert_varying(axes: tuple[Any, ...], x: Any) -> Any:
    """Casts ``x`` to vary over ``axes`` where types are tracked, as lax does implicitly.

    Raises ValueError for an axis of vmap there, where lax fails an assertion.
    """
    mesh_axes = jax.sharding.get_abstract_mesh().axis_names
    if check_vma() and (foreign := [axis for axis in axes if axis not in mesh_axes]):
        raise ValueError(
            f"axis {foreign[0]!r} is no axis of the mesh {mesh_axes}: inside a shard_map that "
            "tracks where values vary there are no collectives over an axis of vmap. Pass "
            "check_vma=False to jax.shard_map."
        )
    return _parallel.insert_collective_pvary(axes, x)


def tracked_axes(axes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The ``axes`` over which lax reduces: all, but for a setting that drops those of size 1."""
    return tuple(_parallel._maybe_skip_one_sized_axes(axes))


def pvary(x: Any, axes: tuple[Any, ...]) -> Any:
    """Casts ``x``, which is equal on all devices of ``axes``, to a varying value."""
    return _core.pvary(x, axes)


def reduction_state(x: Any) -> bool:
    """Whether ``x`` has one of the types 'unreduced' or 'reduced', which lax alone handles."""
    mat = jax.typeof(x).manual_axis_type
    return bool(mat.unreduced or mat.reduced)


def per_device(aval: Any) -> Any:
    """The type of the array that each device has, for a value that is 'unreduced' or 'reduced'."""
    mat = aval.manual_axis_type
    if not (mat.unreduced or mat.reduced):
        return aval
    varying = mat.varying | mat.unreduced | mat.reduced
    return aval.update(manual_axis_type=_core.ManualAxisType(varying=varying))


def is_tracer(x: Any) -> bool:
    """Whether ``x`` stands for a value that is known only when the program runs."""
    return isinstance(x, _core.Tracer)


def canonicalize_axis(axis: int, ndim: int) -> int:
    """``axis`` as a number from 0; raises ValueError where it is out of range."""
    return int(_canonicalize_axis(axis, ndim))


def has_known_shape(aval: Any) -> bool:
    """Whether no dimension is a symbol, as those of a program exported for many shapes are."""
    return bool(_core.is_constant_shape(aval.shape))


def is_for_export(ctx: mlir.LoweringRuleContext) -> bool:
    """Whether the program that ``ctx`` lowers is to be exported, not compiled here."""
    return bool(ctx.module_context.lowering_parameters.for_export)


def avals(ctx: mlir.LoweringRuleContext) -> tuple[Any, Any]:
    """Types of the one operand and the one result."""
    return ctx.avals_in[0], ctx.avals_out[0]


def lower_within(
    ctx: mlir.LoweringRuleContext, rule: Callable[..., Any], *args: Any, **changes: Any
) -> Any:
    """Lowers by ``rule`` in ``ctx`` with ``changes``; the order of calls goes on in ``ctx``."""
    inner = ctx.replace(**changes)
    results = rule(inner, *args)
    if inner.tokens_out is not None:
        ctx.set_tokens_out(inner.tokens_out)
    return results


def axis_context(ctx: mlir.LoweringRuleContext) -> Any:
    """Which axes of which mesh are manual where ``ctx`` lowers."""
    return ctx.module_context.axis_context


def shard_map_context(params: dict[str, Any]) -> Any:
    """The axis context inside a shard_map of these parameters, as its lowering has it."""
    mesh = params["mesh"]
    return _SPMDAxisContext(mesh, params["newly_manual_axes"] | set(mesh.manual_axes))


def manual_mesh(axis_context: Any) -> Any | None:
    """The mesh whose axes are all manual, else None."""
    if not isinstance(axis_context, _SPMDAxisContext):
        return None
    mesh = axis_context.mesh
    return mesh if set(mesh.axis_names) <= set(axis_context.manual_axes) else None


def mesh_axis_groups(axis_context: Any, axes: tuple[Any, ...]) -> list[list[int]]:
    """Logical device ids of every group of the collective over ``axes``, in axis order."""
    groups = _pxla.axis_groups(axis_context, axes)
    return [[int(device) for device in group] for group in groups]


def new_call_number(ctx: mlir.LoweringRuleContext) -> tuple[str, int]:
    """Name of the module and a number that no other call in it has; alike in every process."""
    module = ctx.module_context
    name = module.module.operation.attributes["sym_name"]
    return str(name).strip('"'), int(next(module.channel_iterator))


def distributed_client() -> Any:
    """The client of jax.distributed's key-value store, None where there is none."""
    return _distributed.global_state.client


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


def metadata() -> dict[str, Any]:
    """What ``set_xla_metadata`` says here: while an equation is lowered, what it said there."""
    return _xla_metadata_lib.current_xla_metadata() or {}


def needed(program: Any) -> Any:
    """The jaxpr of a closed one, without what none of its results needs, as jit lowers it."""
    jaxpr = program.jaxpr
    return _pe.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[0]


def sub_jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    """The programs among the parameters of an equation, without their constants."""
    return iter(_core.jaxprs_in_params(params))


def user_frame(source_info: Any, skip: str) -> tuple[str, int, str] | None:
    """File, line and function of the innermost frame outside of JAX and of the folder ``skip``."""
    for frame in _source_info_util.user_frames(source_info.traceback):
        if not frame.file_name.startswith(skip):
            return frame.file_name, int(frame.start_line), frame.function_name
    return None


Observer = Callable[[str, Any, Any], None]

_observers: list[Observer] = []
_observing = threading.Lock()


@contextlib.contextmanager
def observe_lowering(see: Observer) -> Iterator[None]:
    """Calls ``see(name, closed jaxpr, axis context)`` for each program that is lowered inside.

    Programs that are compiled already are not lowered again.
    """
    with _observing:
        if not hasattr(_mlir.lower_jaxpr_to_module, "pccl_jax_observed"):
            _mlir.lower_jaxpr_to_module = _observed(_mlir.lower_jaxpr_to_module)
        _observers.append(see)
    try:
        yield
    finally:
        with _observing:
            _observers.remove(see)


def _observed(lower: Callable[..., Any]) -> Any:
    @functools.wraps(lower)
    def observed(name: str, jaxpr: Any, **rest: Any) -> Any:
        for see in tuple(_observers):
            see(name, jaxpr, rest["axis_context"])
        return lower(name, jaxpr, **rest)

    vars(observed)["pccl_jax_observed"] = True
    return observed
