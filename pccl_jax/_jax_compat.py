"""Everything of JAX that has no public name, in one place: jax 0.10.2 to 0.12."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax._src import config as _config
from jax._src import core as _core
from jax._src import dispatch as _dispatch
from jax._src import distributed as _distributed
from jax._src import effects as _effects
from jax._src import mesh as _mesh
from jax._src import source_info_util as _source_info_util
from jax._src import util as _util
from jax._src import xla_bridge as _xla_bridge
from jax._src import xla_metadata_lib as _xla_metadata_lib
from jax._src.interpreters import mlir as _mlir
from jax._src.interpreters import pxla as _pxla
from jax._src.lax import parallel as _parallel
from jax._src.lib.mlir.dialects import hlo as _hlo  # type: ignore[attr-defined]
from jax._src.sharding_impls import SPMDAxisContext as _SPMDAxisContext
from jax._src.util import canonicalize_axis as _canonicalize_axis
from jax.experimental import compute_on as _compute_on
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

__all__ = [
    "CallOrder",
    "Primitive",
    "ShapedArray",
    "ad",
    "apply_eagerly",
    "avals",
    "axis_context",
    "backends_exist",
    "batching",
    "canonicalize_axis",
    "check_vma",
    "devices_fixed",
    "distributed_client",
    "distributed_state",
    "has_known_shape",
    "hide_call_orders",
    "in_description",
    "insert_varying",
    "is_for_export",
    "is_tracer",
    "lax_collectives",
    "lax_type_rule",
    "lower_on",
    "lowering_rule",
    "manual_mesh",
    "mesh_axis_groups",
    "metadata",
    "mlir",
    "new_call_number",
    "observe_lowering",
    "on_collective_stream",
    "ordered_ffi_call",
    "partition_id",
    "per_device",
    "platform_of",
    "program_devices",
    "pvary",
    "reduction_state",
    "requires_devices",
    "shard_map_context",
    "sub_jaxprs",
    "tracked_axes",
    "ungrouped_type",
    "user_frame",
]

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
        inner = ctx.replace(avals_out=list(ctx.avals_out))  # JAX appends it to a list
        results = _mlir.lower_per_platform(
            inner, str(primitive), all_rules, others, _effects.no_effects, *args, **params
        )
        if inner.tokens_out is not None:
            ctx.set_tokens_out(inner.tokens_out)
        return results

    mlir.register_lowering(primitive, lower, cacheable=False)


def metadata() -> dict[str, Any]:
    """What ``set_xla_metadata`` says here: while an equation is lowered, what it said there."""
    return _xla_metadata_lib.current_xla_metadata() or {}


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
    (0.6 ms a call). Not needed on CPU: launches from one thread run there one after the other.
    Where JAX is another than we know, it does that, and results are the same.
    """
    lower = getattr(_pxla, "_cached_lowering_to_hlo", None)
    if lower is None:
        return

    @functools.wraps(lower)
    def lower_hiding(program: Any, *args: Any, **kwargs: Any) -> Any:
        effects = program.effects
        of_inputs = any(isinstance(e, _effects.JaxprInputEffect) for e in effects)
        if any(isinstance(e, CallOrder) for e in effects) and not of_inputs:
            program = _hiding_call_orders(program)
        return lower(program, *args, **kwargs)

    setattr(_pxla, "_cached_lowering_to_hlo", lower_hiding)  # noqa: B010 (its type is narrower)
