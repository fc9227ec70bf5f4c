"""From a primitive to an FFI call: groups, choice, schedule, attributes.

AD and batching have changed the collective and its size by now, so this is the first place
where the choice can be made.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pccl_jax import schedule
from pccl_jax._jax_compat import (
    ShapedArray,
    avals,
    axis_context,
    has_known_shape,
    is_for_export,
    manual_mesh,
    mesh_axis_groups,
    mlir,
    new_call_number,
    partition_id,
)
from pccl_jax.dispatch import Choice, Request, record, select
from pccl_jax.runtime import joined_world, place_devices, preferred_algorithm, register_handlers
from pccl_jax.runtime.native import TARGET
from pccl_jax.topology import GroupLayout, arrange
from pccl_jax.types import Collective, Op, reduces

Groups = tuple[tuple[int, ...], ...] | None

#: Chunks in rows shorter than this are better moved whole, and transposed by XLA.
SHORTEST_ROW_BYTES = 64


@dataclass(frozen=True)
class Call:
    """One collective as its lowering rule sees it.

    Attributes:
        collective: what is to be done.
        op: with which operator; SUM for an all-gather.
        axes: names of the mesh axes.
        groups: ``axis_index_groups``.
        algorithm: ``algorithm=`` of the call.
        dimension: along which chunks are concatenated in the larger array; 0 if none.
    """

    collective: Collective
    op: Op
    axes: tuple[Any, ...]
    groups: Groups
    algorithm: str | None
    dimension: int = 0

    @property
    def axis_label(self) -> str:
        """The axes as the user writes them."""
        return repr(self.axes[0] if len(self.axes) == 1 else self.axes)


@dataclass(frozen=True)
class Site:
    """Where a collective stands in a program.

    Attributes:
        axis_context: which axes of which mesh are manual there, as JAX's lowering has it.
        operand: type of the operand.
        result: type of the result.
        exported: whether the program is to run elsewhere, or later.
    """

    axis_context: Any
    operand: Any
    result: Any
    exported: bool = False


@dataclass(frozen=True)
class Plan:
    """How a call is served by our own executor."""

    choice: Choice
    layout: GroupLayout
    schedule: schedule.Schedule
    processes: np.ndarray[Any, np.dtype[np.int64]]


def wants_dimension_first(ctx: mlir.LoweringRuleContext, call: Call, parts: int) -> bool:
    """Whether to serve ``call`` along the first dimension, and let XLA transpose.

    So it is where a chunk lies in many short rows, or in several and MPI is to move it. What is
    left to lax stays as it is.

    Args:
        ctx: of the lowering rule.
        call: the collective.
        parts: into how many chunks the operand is cut; 1 if it is a chunk.
    """
    site = _site(ctx)
    aval = site.operand
    if not has_known_shape(aval) or math.prod(aval.shape[: call.dimension]) <= 1:
        return False
    row_bytes = math.prod(aval.shape[call.dimension :]) * aval.dtype.itemsize // parts
    short = row_bytes < SHORTEST_ROW_BYTES
    if not short and joined_world() is None:
        return False
    algorithm = choose(site, call)[0].algorithm
    return algorithm == "mpi" or (short and algorithm != "xla")


def make_plan(ctx: mlir.LoweringRuleContext, call: Call) -> Plan | None:
    """Chooses for ``call``; None where it is left to lax. The choice is recorded either way."""
    site = _site(ctx)
    choice, layout = choose(site, call)
    record(choice)
    if choice.algorithm == "xla" or layout is None:
        return None
    built = schedule.build(choice.algorithm, call.collective, layout.nodes, layout.local)
    processes = np.array(_processes(site, layout), np.int64).reshape(-1)
    return Plan(choice, layout, built, processes)


def _site(ctx: mlir.LoweringRuleContext) -> Site:
    return Site(axis_context(ctx), *avals(ctx), exported=is_for_export(ctx))


def choose(site: Site, call: Call) -> tuple[Choice, GroupLayout | None]:
    """The choice for ``call``, and its groups by node where their sizes are equal."""
    layout, obstacle = _layout(site, call)
    request = _request(call, site, layout)
    if layout is not None:
        request = _with_processes(request, _processes(site, layout))
    preferred = preferred_algorithm()
    choice = select(request, call.algorithm, preferred)
    if site.exported and obstacle is None and not (call.algorithm or preferred):
        obstacle = "for export, where no algorithm was asked for by name"
    if obstacle:
        choice = Choice(request, "xla", obstacle)
    return choice, layout


def _processes(site: Site, layout: GroupLayout) -> list[list[int]]:
    """The processes of each group's ranks, in schedule order."""
    process_of = place_devices(manual_mesh(site.axis_context)).process_of
    return [[process_of[device] for device in group] for group in layout.members]


def _with_processes(request: Request, groups: list[list[int]]) -> Request:
    world = joined_world()
    most = max(count for group in groups for count in Counter(group).values())
    return replace(request, mpi=None if world is None else world.mpi, ranks_per_process=most)


def _layout(site: Site, call: Call) -> tuple[GroupLayout | None, str | None]:
    """The groups by node, and what keeps us from serving the call, if anything does."""
    aval, mesh = site.operand, manual_mesh(site.axis_context)
    if mesh is None:
        return None, "not in a shard_map that is manual over all axes of its mesh"
    groups = mesh_axis_groups(site.axis_context, call.axes)
    if call.groups is not None:
        groups = [[group[i] for i in part] for group in groups for part in call.groups]
    places = place_devices(mesh)
    layout = arrange(groups, places.node_of)
    if layout is None:
        return None, "axis_index_groups of different sizes"
    if not has_known_shape(aval):
        return layout, "a shape with symbols in it"
    if math.prod(aval.shape) == 0:
        return layout, "no elements"
    if jnp.issubdtype(aval.dtype, jax.dtypes.extended):
        return layout, f"{aval.dtype} is an extended type"
    if jax.dtypes.itemsize_bits(aval.dtype) < 8:
        return layout, f"{aval.dtype} is packed"
    if call.collective is not Collective.ALL_GATHER and not reduces(aval.dtype, call.op):
        return layout, f"no kernel reduces {aval.dtype} with {call.op.name.lower()}"
    if places.obstacle is not None:
        return layout, places.obstacle
    return layout, None


def _request(call: Call, site: Site, layout: GroupLayout | None) -> Request:
    aval = site.operand
    elements = 0  # unknown
    if has_known_shape(aval):
        elements = max(math.prod(aval.shape), math.prod(site.result.shape))
    return Request(
        collective=call.collective,
        op=call.op,
        axis=call.axis_label,
        shape=tuple(aval.shape),
        dtype=aval.dtype.name,
        nbytes=elements * aval.dtype.itemsize,
        nodes=layout.nodes if layout else 1,
        local=layout.local if layout else 1,
        even=layout.even if layout else True,
    )


def emit(ctx: mlir.LoweringRuleContext, x: Any, call: Call, plan: Plan) -> Any:
    """Emits the FFI call. Its rank operand is the partition id: right under any mesh."""
    register_handlers()
    aval, _ = avals(ctx)
    attributes = {
        "collective": np.int64(call.collective),
        "op": np.int64(call.op),
        "program": schedule.encode(plan.schedule),
        "members": np.array(plan.layout.members, np.int64).reshape(-1),
        "places": np.array(plan.layout.places, np.int64).reshape(-1),
        "processes": plan.processes,
        "rows": np.int64(math.prod(aval.shape[: call.dimension])),
        "label": _label(call, plan.choice),
        "algorithm": plan.choice.algorithm,
        "site": _site_id(ctx),
    }
    rank_aval = ShapedArray((), np.dtype(np.uint32))
    call_ctx = ctx.replace(avals_in=[aval, rank_aval])
    return jax.ffi.ffi_lowering(TARGET)(call_ctx, x, partition_id(), **attributes)


def _label(call: Call, choice: Choice) -> str:
    """The call in words; processes whose calls read differently do not belong together."""
    op = "" if call.collective is Collective.ALL_GATHER else f" ({call.op.name.lower()})"
    operand = f"{choice.dtype}[{','.join(map(str, choice.shape))}]"
    return f"{call.collective.label}{op} of {operand} over axis {call.axis_label}"


def _site_id(ctx: mlir.LoweringRuleContext) -> np.int64:
    """A number of the call that every process computes alike, whatever it passes there."""
    text = repr(new_call_number(ctx))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return np.int64(int.from_bytes(digest, "little", signed=True))
