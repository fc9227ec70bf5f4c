"""How much scratch the GPU executor needs for a call.

What it keeps there, and why, is told in ``ffi/gpu/plan.h``; the sums here are the same.
"""

from __future__ import annotations

from pccl_jax.schedule.ir import Action, Inter, Intra, Schedule, Step
from pccl_jax.types import Collective

#: A region begins at a multiple of so many bytes.
_REGION = 256

#: Chunks, and pieces, of an all-reduce are multiples of so many bytes.
_LINE = 16


def gpu_scratch_bytes(
    schedule: Schedule, operand_bytes: int, result_bytes: int, *, regular: bool = False
) -> int:
    """Bytes of scratch with which the GPU executor can run ``schedule``.

    Args:
        schedule: what will be run.
        operand_bytes: size of the operand.
        result_bytes: size of the result.
        regular: of an all-gather or reduce-scatter: that each rank's chunk is one row, and that
            ranks are in the same order in the schedule and on the axis. Where that is not
            known, room is left for the other case.

    For example::

        >>> from pccl_jax.schedule import build
        >>> gather = build("hier_rec", Collective.ALL_GATHER, 4, 2)
        >>> gpu_scratch_bytes(gather, 1024, 8192, regular=True)
        16384
    """
    chunk = _chunk_bytes(schedule, operand_bytes, result_bytes)
    whole, own = chunk * schedule.ranks, chunk * schedule.nodes
    steps = [phase for phase in schedule.phases if isinstance(phase, Step)]
    most = max((step.count for step in steps), default=0)
    reduces = any(step.action is not Action.COPY for step in steps)
    inner, outer = schedule.local > 1, schedule.nodes > 1
    scatters = schedule.collective is Collective.REDUCE_SCATTER
    if schedule.collective is Collective.ALL_REDUCE:
        regular = not schedule.split or whole == operand_bytes
    regions = (
        0 if regular else whole,
        own if schedule.split and outer and (inner or scatters) else 0,
        most * chunk if most > 1 else 0,
        most * chunk if reduces or most > 1 else 0,
        whole if schedule.split and outer and inner else 0,
        _exchange_bytes(schedule, chunk),
    )
    return sum(_round_up(nbytes, _REGION) for nbytes in regions[:-1]) + regions[-1]


def _chunk_bytes(schedule: Schedule, operand_bytes: int, result_bytes: int) -> int:
    if schedule.collective is not Collective.ALL_REDUCE:
        return min(operand_bytes, result_bytes)
    if not schedule.split:
        return operand_bytes
    return _round_up(-(-operand_bytes // schedule.ranks), _LINE)


def _exchange_bytes(schedule: Schedule, chunk: int) -> int:
    """What collectives need that are made of messages: the others' parts, to be reduced."""
    most = 0
    for phase in schedule.phases:
        if not isinstance(phase, Intra | Inter):
            continue
        within = isinstance(phase, Intra)
        size = schedule.local if within else schedule.nodes
        nbytes = chunk * (schedule.chunks if within else 1)
        if phase.collective is Collective.REDUCE_SCATTER:
            most = max(most, (size - 1) * nbytes)
        elif phase.collective is Collective.ALL_REDUCE:
            vector = nbytes * (size if schedule.split else 1)
            most = max(most, (size - 1) * _round_up(-(-vector // size), _LINE))
    return most


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
