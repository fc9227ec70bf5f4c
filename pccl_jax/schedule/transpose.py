"""From the steps of an all-gather to all three collectives.

The transpose of an all-gather is a reduce-scatter: play the film backwards, and let every
receiver send back what it received, to be reduced into what the sender holds. Where a chunk
spread from its owner along a tree, its partial results now flow along the same tree to
the owner. An all-reduce is the reduce-scatter followed by the all-gather.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from pccl_jax.errors import ScheduleError
from pccl_jax.schedule.ir import Action, Index, Intra, Schedule, Step
from pccl_jax.types import Collective

#: Given a number of ranks, the steps that all-gather among them.
AllGatherSteps = Callable[[int], Iterable[Step]]

_ADVICE = "Register a builder that writes the reduce-scatter itself (pccl_jax.schedule.register)."


def build_from_all_gather(
    name: str, steps: AllGatherSteps, collective: Collective, nodes: int, local: int
) -> Schedule:
    """The schedule of ``collective`` that the all-gather ``steps`` between nodes imply.

    On a single node an all-reduce is left whole to the node: there ``split`` is False.

    Raises:
        ScheduleError: if a step has no transpose that a :class:`Step` can express.
    """
    gather: tuple[Intra | Step, ...] = tuple(steps(nodes)) if nodes > 1 else ()
    if local > 1:
        gather += (Intra(Collective.ALL_GATHER),)
    split = True
    if collective is Collective.ALL_GATHER:
        phases = gather
    elif collective is Collective.REDUCE_SCATTER:
        phases = transpose(gather, nodes)
    elif nodes > 1:
        phases = transpose(gather, nodes) + gather
    else:
        phases = (Intra(Collective.ALL_REDUCE),) if local > 1 else ()
        split = False
    return Schedule(collective, name, nodes, local, split, phases)


def transpose(phases: Iterable[Intra | Step], nodes: int) -> tuple[Intra | Step, ...]:
    """The phases of the reduce-scatter that reverses an all-gather among ``nodes`` nodes.

    Raises:
        ScheduleError: if a phase is no part of an all-gather, or if its transpose cannot be
            written as a :class:`Step`.
    """
    return tuple(_transpose_phase(phase, nodes) for phase in reversed(tuple(phases)))


def _transpose_phase(phase: Intra | Step, nodes: int) -> Intra | Step:
    if isinstance(phase, Intra):
        if phase.collective is not Collective.ALL_GATHER:
            raise ScheduleError(f"got {phase}, expected an all-gather to transpose. {_ADVICE}")
        return Intra(Collective.REDUCE_SCATTER)
    if phase.action is not Action.COPY:
        raise ScheduleError(f"got {phase}, expected action COPY to transpose. {_ADVICE}")
    first = _from_receiver(phase, nodes)
    last_round = (phase.times - 1) * phase.stride
    return Step(
        to=Index(flip=phase.to.flip, add=-phase.to.add),
        first=replace(first, add=(first.add + last_round) % nodes),
        count=phase.count,
        action=Action.REDUCE,
        senders=_receivers(phase, nodes),
        times=phase.times,
        stride=-phase.stride,
    )


def _from_receiver(step: Step, nodes: int) -> Index:
    """``step.first`` of the sender, in terms of the rank that receives from it."""
    flip, add, first = step.to.flip, step.to.add, step.first
    if add % nodes == 0:
        return replace(first, flip=first.flip ^ (flip & first.keep))
    if flip == 0 and first.keep == 0:
        return first
    if flip == 0 and first.keep == -1 and first.flip == 0:
        return replace(first, add=first.add - add)
    raise ScheduleError(
        f"{step} has no transpose of the form of a Step: where `to` adds, it may not flip and "
        f"`first` may neither keep some bits nor flip. {_ADVICE}"
    )


def _receivers(step: Step, nodes: int) -> tuple[int, int]:
    """The range of ranks that the range ``step.senders`` sends to."""
    if step.senders == (0, nodes):
        return step.senders
    peers = {step.to.at(rank, nodes) for rank in range(*step.senders)}
    if not peers or max(peers) - min(peers) + 1 != len(peers):
        raise ScheduleError(
            f"{step}: the receivers {sorted(peers)} are no range of ranks, so it has no "
            f"transpose of the form of a Step. {_ADVICE}"
        )
    return min(peers), max(peers) + 1
