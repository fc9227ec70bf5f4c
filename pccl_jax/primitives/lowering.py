"""From a primitive to a plan: groups, choice, schedule.

AD and batching have changed the collective and its size by now, so this is the first place
where the choice can be made.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from pccl_jax import schedule
from pccl_jax._jax_compat import (
    avals,
    axis_context,
    devices_fixed,
    has_known_shape,
    is_for_export,
    manual_mesh,
    mesh_axis_groups,
    mlir,
    program_devices,
)
from pccl_jax.dispatch import Choice, Request, record, select
from pccl_jax.primitives.over_communicator import communicator_of
from pccl_jax.runtime import (
    Communicator,
    Places,
    World,
    joined_world,
    place_devices,
    preferred_algorithm,
)
from pccl_jax.topology import GroupLayout, arrange
from pccl_jax.types import Collective, Op, reduces

Groups = tuple[tuple[int, ...], ...] | None

_OTHER_ORDER = (
    "with jax.set_mesh JAX may use the program for devices in another order, and on GPUs our calls "
    "name devices: pass mesh= to shard_map instead"
)

#: Chunks in rows shorter than this are better moved whole, and transposed by XLA.
SHORTEST_ROW_BYTES = 64


@dataclass(frozen=True)
class Call:
    """One collective as its lowering rule sees it.

    Attributes:
        collective: what is to be done.
        op: with which operator; SUM for an all-gather.
        axes: names of the mesh axes, or the one communicator.
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
    def communicator(self) -> Communicator | None:
        """The communicator that the collective goes over, or None."""
        return communicator_of(self.axes)

    @property
    def axis_label(self) -> str:
        """The axes as the user writes them."""
        return repr(self.axes[0] if len(self.axes) == 1 else self.axes)

    @property
    def world(self) -> World | None:
        """The processes that it may concern, where there are several."""
        return joined_world() if self.communicator is None else self.communicator.world

    def places(self, axis_context: Any) -> Places:
        """Of the devices that it goes over, and of the others in the mesh."""
        if self.communicator is None:
            return place_devices(manual_mesh(axis_context))
        ranks = tuple(range(self.communicator.size))
        return Places(self.communicator.node_of, process_of=ranks, device_of=ranks)


@dataclass(frozen=True)
class Site:
    """Where a collective stands in a program.

    Attributes:
        axis_context: which axes of which mesh are manual there, as JAX's lowering has it.
        operand: type of the operand.
        result: type of the result.
        platform: for which it is lowered: ``cpu``, ``cuda``, ``rocm`` or ``tpu``.
        devices_fixed: whether JAX uses the result for these devices in this order only.
        exported: whether the program is to run elsewhere, or later.
    """

    axis_context: Any
    operand: Any
    result: Any
    platform: str
    devices_fixed: bool
    exported: bool = False


@dataclass(frozen=True)
class Plan:
    """How a call is served by our own executor."""

    site: Site
    choice: Choice
    layout: GroupLayout
    schedule: schedule.Schedule
    places: Places


def site_of(ctx: mlir.LoweringRuleContext, platform: str) -> Site:
    """Where ``ctx`` lowers, for ``platform``."""
    context = axis_context(ctx)
    fixed = devices_fixed(ctx.primitive, context)
    return Site(context, *avals(ctx), platform, fixed, is_for_export(ctx))


def wants_dimension_first(site: Site, call: Call, parts: int) -> bool:
    """Whether to serve ``call`` along the first dimension, and let XLA transpose.

    So it is where a chunk lies in many short rows, or in several and MPI is to move it. What is
    left to lax stays as it is.

    Args:
        site: where the collective stands.
        call: the collective.
        parts: into how many chunks the operand is cut; 1 if it is a chunk.
    """
    aval = site.operand
    if not has_known_shape(aval) or math.prod(aval.shape[: call.dimension]) <= 1:
        return False
    row_bytes = math.prod(aval.shape[call.dimension :]) * aval.dtype.itemsize // parts
    short = row_bytes < SHORTEST_ROW_BYTES
    if not short and call.world is None:
        return False
    algorithm = choose(site, call)[0].algorithm
    return algorithm == "mpi" or (short and algorithm != "xla")


def make_plan(site: Site, call: Call) -> Plan | None:
    """Chooses for ``call``; None where it is left to lax. The choice is recorded either way."""
    if call.communicator is not None and (devices := program_devices(site.axis_context)) > 1:
        raise ValueError(
            "comm= connects processes that have one device each, and this program is for "
            f"{devices} devices: jit it for one of them, or pass the axis_name of a mesh over all "
            "processes."
        )
    choice, layout = choose(site, call)
    record(choice)
    if choice.algorithm == "xla" or layout is None:
        return None
    built = schedule.build(choice.algorithm, call.collective, layout.nodes, layout.local)
    return Plan(site, choice, layout, built, call.places(site.axis_context))


def choose(site: Site, call: Call) -> tuple[Choice, GroupLayout | None]:
    """The choice for ``call``, and its groups by node where their sizes are equal."""
    layout, obstacle = _layout(site, call)
    request = _request(call, site, layout)
    if layout is not None:
        request = _with_processes(request, call, site, layout)
    preferred = preferred_algorithm()
    choice = select(request, call.algorithm, preferred)
    named = call.algorithm or preferred or call.communicator  # which lax does not have
    if site.exported and obstacle is None and not named:
        obstacle = "for export, where no algorithm was asked for by name"
    if obstacle:
        choice = Choice(request, "xla", obstacle)
    return choice, layout


def _with_processes(request: Request, call: Call, site: Site, layout: GroupLayout) -> Request:
    process_of = call.places(site.axis_context).process_of
    groups = ([process_of[device] for device in group] for group in layout.members)
    most = max(count for group in groups for count in Counter(group).values())
    mpi = None if call.world is None else call.world.mpi
    return replace(request, mpi=mpi, ranks_per_process=most)


def _layout(site: Site, call: Call) -> tuple[GroupLayout | None, str | None]:
    """The groups by node, and what keeps us from serving the call, if anything does."""
    aval = site.operand
    groups = _groups(site, call)
    if groups is None:
        return None, "not in a shard_map that is manual over all axes of its mesh"
    places = call.places(site.axis_context)
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
    if call.collective is not Collective.ALL_GATHER and not reduces(
        aval.dtype, call.op, site.platform
    ):
        return layout, f"no kernel reduces {aval.dtype} with {call.op.name.lower()}"
    if places.platform != site.platform:
        return layout, f"lowered for {site.platform}, and the devices are {places.platform}"
    if places.obstacle is None and site.platform != "cpu" and not site.devices_fixed:
        return layout, _OTHER_ORDER
    return layout, places.obstacle


def _groups(site: Site, call: Call) -> list[list[int]] | None:
    """The logical device ids, or ranks of the communicator, that take part together."""
    if call.communicator is not None:
        return [list(range(call.communicator.size))]
    if manual_mesh(site.axis_context) is None:
        return None
    groups = mesh_axis_groups(site.axis_context, call.axes)
    if call.groups is None:
        return groups
    return [[group[i] for i in part] for group in groups for part in call.groups]


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
        platform=site.platform,
        communicator=call.communicator is not None,
    )
