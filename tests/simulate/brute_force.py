"""A schedule on a machine, one message after the other, in plain Python.

It shares no code with the engine but the time that a collective within a node takes: servers are
dictionaries, every queue a sorted list, every message a tuple.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from pccl_jax.schedule import Action, Intra, Schedule, Step
from pccl_jax.simulate import Machine
from pccl_jax.simulate.cost import intra_time


def finish_times(
    schedule: Schedule, nbytes: float, local: int, machine: Machine
) -> tuple[float, list[float]]:
    """When the last rank is done, and when each is."""
    ready = [machine.launch_s if schedule.phases else 0.0] * schedule.ranks
    free: dict[Any, float] = defaultdict(float)
    for phase in schedule.phases:
        if isinstance(phase, Intra):
            _within(ready, schedule, phase, nbytes, local, machine)
        else:
            assert isinstance(phase, Step)
            for _ in range(phase.times):
                _round(ready, free, schedule, phase, nbytes, local, machine)
    nics = [at for server, at in free.items() if server[0].startswith("nic")]
    return max(ready + nics), ready


def _within(
    ready: list[float],
    schedule: Schedule,
    phase: Intra,
    nbytes: float,
    local: int,
    machine: Machine,
) -> None:
    nodes = schedule.ranks // local
    for node in range(nodes):
        ranks = range(node * local, (node + 1) * local)
        end = max(ready[r] for r in ranks) + intra_time(phase, nbytes, nodes, local, machine)
        for r in ranks:
            ready[r] = end


def _round(
    ready: list[float],
    free: dict[Any, float],
    schedule: Schedule,
    step: Step,
    nbytes: float,
    local: int,
    machine: Machine,
) -> None:
    size = nbytes * (step.count / schedule.ranks if schedule.split else 1.0)
    mail = []
    for place in range(*step.senders):
        for index in range(schedule.local):
            sender = place * schedule.local + index
            receiver = step.to.at(place, schedule.nodes) * schedule.local + index
            ready[sender] += machine.overhead_s
            mail.append((sender, receiver, ready[sender]))
    for crosses in (True, False):
        chosen = [m for m in mail if (m[0] // local != m[1] // local) is crosses]
        arrivals = _carry(chosen, free, size, local, machine, crosses=crosses)
        for (_, receiver, _), (arrival, pace) in zip(chosen, arrivals, strict=True):
            if step.action is not Action.COPY:
                arrival += _reduction(size, pace, machine)
            ready[receiver] = max(ready[receiver], arrival)


def _reduction(size: float, pace: float, machine: Machine) -> float:
    slower, faster = sorted((pace, 1 / machine.reduce_Bps), reverse=True)
    return size * slower + min(size, machine.segment_bytes) * faster - size * pace


def _carry(
    mail: list[tuple[int, int, float]],
    free: dict[Any, float],
    size: float,
    local: int,
    machine: Machine,
    *,
    crosses: bool,
) -> list[tuple[float, float]]:
    """When each message is there, and seconds that a byte of it took."""
    link = machine.network if crosses else machine.node
    paces = [_pace(one, mail, local, machine, crosses=crosses) for one in mail]
    begun, arrivals = [0.0] * len(mail), [0.0] * len(mail)

    def nic(rank: int) -> tuple[int, int]:
        return rank // local, rank % local % machine.nics_per_node

    def serve(name: str, rank_of: int, come: list[float]) -> Iterator[tuple[int, float]]:
        for i in sorted(range(len(mail)), key=lambda i: (come[i], i)):
            rank = int(mail[i][rank_of])
            server = (f"nic {name}", nic(rank)) if crosses else (f"port {name}", rank)
            free[server] = max(free[server], come[i]) + size * paces[i]
            yield i, free[server]

    for i, done in serve("out", 0, [m[2] for m in mail]):
        begun[i] = done - size * paces[i]
    for i, done in serve("in", 1, [t + link.latency_s for t in begun]):
        arrivals[i] = done
    return list(zip(arrivals, paces, strict=True))


def _pace(
    one: tuple[int, int, float],
    mail: list[tuple[int, int, float]],
    local: int,
    machine: Machine,
    *,
    crosses: bool,
) -> float:
    """Seconds that a byte of a message takes, for all the messages of the round."""
    if not crosses:
        beside = [m for m in mail if m[0] // local == one[0] // local]
        return max(1 / machine.node.bandwidth_Bps, len(beside) / machine.node.shared_Bps)
    network, nics = machine.network, machine.nics_per_node
    pace = 1 / network.bandwidth_Bps
    if not network.group_nodes:
        return pace
    size = local * network.group_nodes
    far = [m for m in mail if m[0] // size != m[1] // size]
    if one in far:
        for end in (0, 1):
            same = [int(m[end]) for m in far if m[end] // size == one[end] // size]
            busy = {(rank // local, rank % local % nics) for rank in same}
            pace = max(pace, len(busy) / network.group_Bps)
    return pace
