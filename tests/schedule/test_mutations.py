"""The checker against the brute force: no wrong schedule passes, no right one is refused.

Each schedule is spoilt in one place at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pccl_jax.errors import ScheduleError
from pccl_jax.schedule import Action, Inter, Intra, Schedule, Step, build, check, supports
from pccl_jax.types import Collective

from .brute_force import is_right

SHAPES = [(2, 1), (3, 1), (4, 1), (6, 1), (7, 1), (8, 1), (1, 3), (2, 2), (3, 2), (4, 3), (5, 2)]

#: What may be refused though the numbers come out right: it is malformed, or it is waste.
STRICTER = re.compile(
    "already|below|given away|give away|to itself|expected the finished result|"
    "finished then|expected 1 to|expected -1|expected none|COMBINE|expected at least|"
    "where split=False"
)


def mutants(schedule: Schedule) -> Iterator[Schedule]:
    """All schedules that differ from ``schedule`` in one thing."""
    phases = schedule.phases
    for i, phase in enumerate(phases):
        before, after = phases[:i], phases[i + 1 :]
        variants = _steps(phase) if isinstance(phase, Step) else _collectives(phase)
        spoilt = [(), (phase, phase), *((variant,) for variant in variants)]
        for instead in spoilt:
            yield replace(schedule, phases=before + tuple(instead) + after)
        if after and after[0] != phase:
            yield replace(schedule, phases=(*before, after[0], phase, *after[1:]))
    yield replace(schedule, split=not schedule.split)
    for collective in set(Collective) - {schedule.collective}:
        yield replace(schedule, collective=collective)


def _steps(step: Step) -> Iterator[Step]:
    low, high = step.senders
    for by in (-1, 1):
        yield replace(step, count=step.count + by)
        yield replace(step, times=step.times + by)
        yield replace(step, stride=step.stride + by)
        yield replace(step, to=replace(step.to, add=step.to.add + by))
        yield replace(step, first=replace(step.first, add=step.first.add + by))
        yield replace(step, first=replace(step.first, keep=step.first.keep * 2))
        yield replace(step, senders=(low + by, high))
        yield replace(step, senders=(low, high + by))
    for bit in (1, 2, 4):
        yield replace(step, to=replace(step.to, flip=step.to.flip ^ bit))
        yield replace(step, first=replace(step.first, flip=step.first.flip ^ bit))
    yield replace(step, to=replace(step.to, add=-step.to.add, flip=0))
    yield replace(step, to=replace(step.to, keep=-2))
    yield replace(step, first=replace(step.first, keep=0))
    if step.stride:
        yield replace(step, stride=0)
        yield replace(step, stride=-step.stride)
    for action in set(Action) - {step.action}:
        yield replace(step, action=action)


def _collectives(phase: Intra | Inter) -> Iterator[Intra | Inter]:
    for collective in set(Collective) - {phase.collective}:
        yield replace(phase, collective=collective)
    yield (Inter if isinstance(phase, Intra) else Intra)(phase.collective)


def _refusal(schedule: Schedule) -> str:
    """What the checker says, nothing if it accepts."""
    try:
        check(schedule)
    except ScheduleError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", ["ring", "rec", "hier_ring", "hier_rec", "latency", "hier_nccl"])
def test_mutants(name: str) -> None:
    refused = accepted = 0
    for nodes, local in SHAPES:
        for collective in Collective:
            if not supports(name, collective):
                continue
            for mutant in mutants(build(name, collective, nodes, local)):
                refusal = _refusal(mutant)
                if not refusal:
                    accepted += 1  # e.g. the stride of a step that is not repeated
                    assert is_right(mutant), mutant
                else:
                    refused += 1
                    assert STRICTER.search(refusal) or not is_right(mutant), (mutant, refusal)
    assert refused > accepted > 0
