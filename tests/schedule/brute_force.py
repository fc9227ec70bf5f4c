"""What a schedule does, message by message, to plain lists of Python integers.

It shares nothing with the checker: it knows no proof, keeps no books, moves real (big)
numbers between real buffers of every rank, and looks at the result. A buffer that was given
away keeps its stale number, as it does in memory.
"""

from __future__ import annotations

import random

from pccl_jax.schedule import Action, Inter, Intra, Schedule, Step
from pccl_jax.types import Collective


def is_right(schedule: Schedule) -> bool:
    """Whether every rank ends with the numbers that the collective promises."""
    steps = [phase for phase in schedule.phases if isinstance(phase, Step)]
    if any(s.senders[0] < 0 or s.senders[1] > schedule.nodes for s in steps):
        return False
    if not schedule.split and schedule.collective is not Collective.ALL_REDUCE:
        return False
    ranks = schedule.ranks
    chunks = ranks if schedule.split else 1
    inputs = _inputs(schedule, chunks)
    buffers = [list(row) for row in inputs]
    for phase in schedule.phases:
        if isinstance(phase, Intra):
            _intra(schedule, phase, buffers)
        elif isinstance(phase, Inter):
            _inter(schedule, phase, buffers)
        else:
            for i in range(phase.times):
                _round(schedule, phase, i, buffers)
    sums = [sum(row[c] for row in inputs) for c in range(chunks)]
    if schedule.collective is Collective.ALL_GATHER:
        return all(row == [inputs[c][c] for c in range(chunks)] for row in buffers)
    if schedule.collective is Collective.REDUCE_SCATTER:
        return all(buffers[rank][rank] == sums[rank] for rank in range(ranks))
    return all(row == sums for row in buffers)


def sent_chunks(schedule: Schedule) -> list[int]:
    """How many chunks each node's ranks send to other nodes."""
    sent = [0] * schedule.nodes
    for phase in schedule.phases:
        if isinstance(phase, Step):
            for node in range(*phase.senders):
                sent[node] += phase.count * phase.times
    return sent


def rounds(schedule: Schedule) -> int:
    """Number of rounds between nodes."""
    return sum(phase.times for phase in schedule.phases if isinstance(phase, Step))


def _inputs(schedule: Schedule, chunks: int) -> list[list[int]]:
    """Random numbers of 200 bits: no two different sums of a few are equal, but by a miracle."""
    source = random.Random(0)
    return [[source.getrandbits(200) for _ in range(chunks)] for _ in range(schedule.ranks)]


def _round(schedule: Schedule, step: Step, i: int, buffers: list[list[int]]) -> None:
    """One round in every rank-aligned group: all read, then all write."""
    nodes, local = schedule.nodes, schedule.local
    mail = []
    for node in range(*step.senders):
        for index in range(local):
            to = ((node ^ step.to.flip) + step.to.add) % nodes
            start = ((node & step.first.keep) ^ step.first.flip) + step.first.add + i * step.stride
            for k in range(step.count):
                chunk = (start + k) % nodes * local + index if schedule.split else 0
                mail.append((to * local + index, chunk, buffers[node * local + index][chunk]))
    for to, chunk, number in mail:
        if step.action is Action.COPY:
            buffers[to][chunk] = number
        else:
            buffers[to][chunk] += number


def _inter(schedule: Schedule, phase: Inter, buffers: list[list[int]]) -> None:
    nodes, local = schedule.nodes, schedule.local
    for index in range(local):
        rows = [list(buffers[node * local + index]) for node in range(nodes)]
        for m in range(schedule.chunks):
            chunk = m * local + index if schedule.split else 0
            total = sum(row[chunk] for row in rows)
            for node in range(nodes):
                if phase.collective is Collective.ALL_GATHER:
                    total = rows[m][chunk]
                elif phase.collective is Collective.REDUCE_SCATTER and node != m:
                    continue
                buffers[node * local + index][chunk] = total


def _intra(schedule: Schedule, phase: Intra, buffers: list[list[int]]) -> None:
    local = schedule.local
    for node in range(schedule.nodes):
        ranks = range(node * local, (node + 1) * local)
        rows = [list(buffers[rank]) for rank in ranks]
        for chunk in range(len(rows[0])):
            total = sum(row[chunk] for row in rows)
            for index, rank in enumerate(ranks):
                if phase.collective is Collective.ALL_REDUCE:
                    buffers[rank][chunk] = total
                elif phase.collective is Collective.ALL_GATHER:
                    buffers[rank][chunk] = rows[chunk % local][chunk]
                elif chunk % local == index:
                    buffers[rank][chunk] = total
