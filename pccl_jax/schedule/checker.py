"""Proof, for one group, that a schedule implements its collective.

:func:`check` plays the schedule and keeps books of who holds which contributions.

*Form.* In every round the receivers are a permutation of the senders, inside the group, so
every send meets its receive; and all ranks run the same rounds in the same order, so none
waits for a message that is sent only after its own. There is no deadlock.

*One group stands for all.* Steps act alike in every rank-aligned group, and phases within a
node act alike on all its ranks. So the books of the ranks of index 0 prove all others.

*Counting suffices where the vector is split.* For a chunk, take the sets of contributions
that the ranks hold, and let "whole" be the set of all. At first the sets are disjoint and
together whole. REDUCE takes a set from its sender and unites it with its receiver's, which
keeps them disjoint and their sizes adding up: so a rank with a set of full *size* has the
whole set, and everybody else has nothing. COPY is allowed of whole sets only; from then on
every rank has the whole or nothing, and uniting two wholes shows as a size beyond it. Hence a
number for each rank and chunk proves what the sets would, in O(ranks) memory for a chunk.
(An all-gather is the case in which the owner's set alone is whole.)

*Where the vector travels whole*, COMBINE lets partial results multiply, and numbers no
longer tell. But there is one chunk only, so the sets themselves are kept, as bits, and
must be disjoint where they meet.

Refused as well, because the buffers would then not hold what the books say: to reduce into a
partial result that was given away; and, because it is waste: to send to a rank what it has.

What a :class:`~pccl_jax.schedule.ir.Vendor` phase does cannot be seen: it is taken on trust.

Every round that is accepted finishes a chunk somewhere or joins two sets, so the check ends
whatever ``times`` says. It takes nodes**2 * 4 bytes, and time proportional to the chunks
sent: for 2048 ranks less than a second.
"""

from __future__ import annotations

import operator

import numpy as np

from pccl_jax.schedule.ir import Action, Inter, Intra, Schedule, Step, Vendor
from pccl_jax.schedule.ledger import Ints, Ledger, Place, SetLedger, WeightLedger
from pccl_jax.types import Collective


def check(schedule: Schedule) -> None:
    """Proves that ``schedule`` implements its collective, or refuses it.

    Raises:
        ScheduleError: says where it fails (phase, round, rank, chunk), what was found there
            and what was expected.
    """
    place = Place(schedule)
    _check_group(place)
    if any(isinstance(phase, Vendor) for phase in schedule.phases):
        return _check_vendor(place)
    ledger: Ledger = WeightLedger(place) if schedule.split else SetLedger(place)
    for place.phase, phase in enumerate(schedule.phases):
        place.round = 0
        _enter(phase, ledger)
    place.phase = None
    ledger.close()


def _enter(phase: object, ledger: Ledger) -> None:
    if isinstance(phase, Step):
        _play(phase, ledger)
    elif isinstance(phase, Intra):
        _check_intra(phase, ledger.place)
        ledger.intra(phase.collective)
    elif isinstance(phase, Inter):
        _check_inter(phase, ledger.place)
        ledger.inter(phase.collective)
    else:
        ledger.place.refuse(f"got {phase!r}, expected an Intra, an Inter or a Step")


def _play(step: Step, ledger: Ledger) -> None:
    place, chunks = ledger.place, ledger.schedule.chunks
    senders, peers = _check_step(step, place)
    sent = step.first.at(senders, chunks)[:, None] + np.arange(step.count)
    for place.round in range(step.times):
        sent %= chunks
        ledger.move(step.action, senders, peers, sent)
        sent += step.stride


def _check_group(place: Place) -> None:
    s = place.schedule
    if s.nodes < 1 or s.local < 1:
        place.refuse("expected at least one node and one rank on each")
    if not s.split and s.collective is not Collective.ALL_REDUCE:
        place.refuse("got split=False, expected split=True: only an all_reduce moves it whole")


def _check_vendor(place: Place) -> None:
    s = place.schedule
    if s.phases != (Vendor(s.collective),) or s.local != 1:
        place.refuse(f"got {s.phases}, expected Vendor({s.collective.name}) alone, and local=1")
    if s.split is (s.collective is Collective.ALL_REDUCE):
        place.refuse(f"got split={s.split}, expected split={not s.split} for a Vendor phase")


def _check_intra(phase: Intra, place: Place) -> None:
    if place.schedule.local == 1:
        place.refuse(f"got {phase}, expected none where a node has one rank")
    if not place.schedule.split and phase.collective is not Collective.ALL_REDUCE:
        place.refuse(f"got {phase}, expected Intra(ALL_REDUCE) where split=False")


def _check_inter(phase: Inter, place: Place) -> None:
    if place.schedule.nodes == 1:
        place.refuse(f"got {phase}, expected none where there is one node")
    if not place.schedule.split and phase.collective is not Collective.ALL_REDUCE:
        place.refuse(f"got {phase}, expected Inter(ALL_REDUCE) where split=False")


def _check_step(step: Step, place: Place) -> tuple[Ints, Ints]:
    """Refuses a malformed step; returns its senders and whom each sends to."""
    s = place.schedule
    _check_fields(step, place)
    if not 0 <= step.senders[0] < step.senders[1] <= s.nodes:
        place.refuse(f"got senders {step.senders}, expected a range of ranks below {s.nodes}")
    if not 1 <= step.count <= s.chunks:
        place.refuse(f"got count {step.count}, expected 1 to {s.chunks} chunks")
    if step.times < 1:
        place.refuse(f"got times {step.times}, expected at least 1")
    if step.action is not Action.COPY and s.collective is Collective.ALL_GATHER:
        place.refuse(f"got {step.action.name}, expected COPY: an all_gather reduces nothing")
    if step.action is Action.COMBINE and s.split:
        place.refuse("got COMBINE, expected REDUCE or COPY where split=True")
    if step.to.keep != -1:
        place.refuse(f"got to.keep {step.to.keep}, expected -1: `to` must be a bijection")
    senders = np.arange(*step.senders)
    # Inside the group before `add` wraps around, `to` is one-to-one and has the inverse
    # ((rank - add) mod nodes) ^ flip by which the executor finds whom it receives from.
    flipped = senders ^ step.to.flip
    outside = (flipped < 0) | (flipped >= s.nodes)
    if outside.any():
        at = int(outside.argmax())
        place.refuse(
            f"rank {senders[at] * s.local} sends to node {senders[at]} ^ {step.to.flip} = "
            f"{flipped[at]}, expected one below {s.nodes}"
        )
    peers = (flipped + step.to.add) % s.nodes
    if (peers == senders).any():
        rank = int((peers == senders).argmax()) + step.senders[0]
        place.refuse(f"rank {rank * s.local} sends to itself, expected another rank")
    return senders, peers


def _check_fields(step: Step, place: Place) -> None:
    """Refuses what is no number, no action or no pair, so that the rest may compute."""
    to, first, senders = step.to, step.first, tuple(step.senders)
    action: object = step.action
    if not isinstance(action, Action):
        place.refuse(f"got action {action!r}, expected one of {', '.join(Action.__members__)}")
    if len(senders) != 2:
        place.refuse(f"got senders {senders}, expected (first, one beyond the last)")
    counts = (step.count, step.times, step.stride, *senders)
    for value in (to.keep, to.flip, to.add, first.keep, first.flip, first.add, *counts):
        if not _is_int32(value):
            place.refuse(f"got the number {value!r} in a step, expected a 32-bit integer")


def _is_int32(value: object) -> bool:
    try:
        return abs(operator.index(value)) < 2**31  # type: ignore[arg-type]
    except TypeError:
        return False
