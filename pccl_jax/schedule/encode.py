"""A schedule as integers: the program that the extension's executor reads.

An int64 array: a header of 5, then a record of 12 for each phase.

Header: version, nodes, local, split (0 or 1), number of phases.
:class:`Intra`: 0, collective, ten zeros. :class:`Vendor`: 2, collective, ten zeros.
:class:`Inter`: 3, collective, ten zeros.
:class:`Step`: 1, to.flip, to.add, first.keep, first.flip, first.add, count, action, times,
stride, senders[0], senders[1]. (``to.keep`` is always -1.)

The layout is part of the contract with the extension (``ffi/schedule.h``); a change of it
changes the version.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pccl_jax.errors import ScheduleError
from pccl_jax.schedule.ir import Action, Index, Inter, Intra, Phase, Schedule, Step, Vendor
from pccl_jax.types import Collective

PROGRAM_VERSION = 1
HEADER_SIZE = 5
RECORD_SIZE = 12

_STEP = 1
_NATIVE: dict[int, type[Intra] | type[Vendor] | type[Inter]] = {0: Intra, 2: Vendor, 3: Inter}


def encode(schedule: Schedule) -> npt.NDArray[np.int64]:
    """The program of ``schedule``, int64[5 + 12 * phases].

    Raises:
        ScheduleError: if a step's ``to`` keeps only some bits.
    """
    s = schedule
    header = [PROGRAM_VERSION, s.nodes, s.local, int(s.split), len(s.phases)]
    records = [value for phase in s.phases for value in _record(phase)]
    return np.array(header + records, dtype=np.int64)


def decode(
    program: npt.NDArray[np.int64], collective: Collective, algorithm: str = "decoded"
) -> Schedule:
    """The schedule that ``program`` encodes; a program knows neither collective nor name.

    Raises:
        ScheduleError: if it is not a program of this version.
    """
    values = [int(value) for value in program]
    phases = values[4] if len(values) >= HEADER_SIZE else -1
    if len(values) != HEADER_SIZE + RECORD_SIZE * phases or values[0] != PROGRAM_VERSION:
        raise ScheduleError(
            f"got {len(values)} integers starting with {values[:HEADER_SIZE]}, expected a program "
            f"of version {PROGRAM_VERSION}: {HEADER_SIZE} and {RECORD_SIZE} for each phase"
        )
    _, nodes, local, split, _ = values[:HEADER_SIZE]
    records = range(HEADER_SIZE, len(values), RECORD_SIZE)
    decoded = tuple(_phase(values[at : at + RECORD_SIZE]) for at in records)
    return Schedule(collective, algorithm, nodes, local, bool(split), decoded)


def _record(phase: Phase) -> list[int]:
    if not isinstance(phase, Step):
        kind = next(code for code, native in _NATIVE.items() if isinstance(phase, native))
        return [kind, phase.collective] + [0] * (RECORD_SIZE - 2)
    if phase.to.keep != -1:
        raise ScheduleError(f"got to.keep {phase.to.keep} in {phase}, expected -1")
    to, first = phase.to, phase.first
    return [
        *(_STEP, to.flip, to.add, first.keep, first.flip, first.add),
        *(phase.count, phase.action, phase.times, phase.stride, *phase.senders),
    ]


def _phase(record: list[int]) -> Phase:
    kind, *values = record
    if kind in _NATIVE:
        return _NATIVE[kind](Collective(values[0]))
    if kind != _STEP:
        raise ScheduleError(f"got a phase of kind {kind}, expected 0 to {max(_NATIVE)}")
    flip, add, first_keep, first_flip, first_add, count, action, times, stride, low, high = values
    return Step(
        to=Index(flip=flip, add=add),
        first=Index(first_keep, first_flip, first_add),
        count=count,
        action=Action(action),
        senders=(low, high),
        times=times,
        stride=stride,
    )
