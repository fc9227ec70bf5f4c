"""One collective of a program, explained."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pccl_jax._jax_compat import devices_fixed, manual_mesh, user_frame
from pccl_jax.accelerate import Served, accelerated, dimensions, served
from pccl_jax.dispatch import Choice, predicted_s
from pccl_jax.explain.walk import Found
from pccl_jax.primitives import Call, Site, choose
from pccl_jax.runtime import place_devices
from pccl_jax.types import Collective

_OUR_FOLDER = str(Path(__file__).parents[1])


@dataclass(frozen=True)
class Line:
    """One collective.

    Attributes:
        program: name of the program that it is in.
        collective: ``all_gather``, ``reduce_scatter``, ``all_reduce``, or the name of a primitive
            of lax that has no counterpart here.
        op: the operator of a reduction, else None.
        axis: the axis names, as written.
        ranks: in each group; None where that is not known.
        nodes: that a group spans; None where they differ in ranks, or it is not known.
        shape: of the operand on each device.
        dtype: of the operand, by name.
        nbytes: of the larger of operand and result on each device.
        algorithm: that serves it.
        reason: why that one.
        time_us: that the cost model predicts for one run; None where it has no model.
        runs: how often it runs each time the program does, at most; None where data decides.
        conditional: whether it may run less often.
        source: ``file:line`` and function of the user's call; None where JAX does not know it.
    """

    program: str
    collective: str
    op: str | None
    axis: str
    ranks: int | None
    nodes: int | None
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    algorithm: str
    reason: str
    time_us: float | None
    runs: int | None
    conditional: bool
    source: str | None

    def as_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return asdict(self)


def explain_found(program: str, found: Found) -> Line:
    """The line of a collective."""
    entry = served(found.equation.primitive)
    params = None if entry is None else entry.params(found.equation.params)
    if entry is None:
        return _not_ours(program, found, f"pccl_jax has no {found.name}")
    if params is None:
        return _not_ours(program, found, "over dimensions of the array, which lax alone has")
    call = entry.call(**params)
    choice = _choice(entry, call, found)
    known = call.communicator is not None or manual_mesh(found.axis_context) is not None
    return Line(
        program=program,
        collective=choice.collective,
        op=None if call.collective is Collective.ALL_GATHER else call.op.name.lower(),
        axis=choice.axis,
        ranks=choice.ranks if known else None,
        nodes=(choice.nodes or None) if known else None,
        shape=choice.shape,
        dtype=choice.dtype,
        nbytes=choice.nbytes,
        algorithm=choice.algorithm,
        reason=choice.reason,
        time_us=predicted_s(choice) * 1e6 if known else None,
        runs=found.runs.count,
        conditional=found.runs.conditional,
        source=_source(found),
    )


def _choice(entry: Served, call: Call, found: Found) -> Choice:
    equation = found.equation
    mesh = manual_mesh(found.axis_context)
    platform = "cpu" if mesh is None else place_devices(mesh).platform
    operand, result = equation.invars[0].aval, equation.outvars[0].aval
    if dimensions(equation.params):  # over which each rank reduces first
        operand = result
    fixed = devices_fixed(equation.primitive, found.axis_context)
    choice, _ = choose(Site(found.axis_context, operand, result, platform, fixed), call)
    if entry.from_lax and not accelerated(equation.ctx.xla_metadata or {}):
        would = f"accelerate() would take {choice.algorithm}, {choice.reason}"
        if choice.algorithm == "xla":
            would = choice.reason
        return Choice(choice.request, "xla", f"a call of jax.lax; {would}")
    return choice


def _not_ours(program: str, found: Found, reason: str) -> Line:
    """The line of a collective that lax alone has."""
    params = found.equation.params
    operand, result = found.equation.invars[0].aval, found.equation.outvars[0].aval
    axes = params.get("axes", params.get("axis_name"))
    elements = max(math.prod(operand.shape), math.prod(result.shape))
    return Line(
        program=program,
        collective=found.name,
        op=None,
        axis=repr(axes[0] if isinstance(axes, tuple) and len(axes) == 1 else axes),
        ranks=None,
        nodes=None,
        shape=tuple(operand.shape),
        dtype=str(operand.dtype),
        nbytes=elements * operand.dtype.itemsize,
        algorithm="xla",
        reason=reason,
        time_us=None,
        runs=found.runs.count,
        conditional=found.runs.conditional,
        source=_source(found),
    )


def _source(found: Found) -> str | None:
    frame = user_frame(found.equation.source_info, skip=_OUR_FOLDER)
    if frame is None:
        return None
    file, line, function = frame
    return f"{file}:{line} ({function.rpartition('<locals>.')[2]})"
