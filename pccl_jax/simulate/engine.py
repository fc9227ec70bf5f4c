"""Plays a schedule on a machine, message by message.

Every rank keeps its own time. In a round it posts its message (``overhead``), and it goes on to
the next round once it has received; so ranks drift apart where links differ, and rounds of one
rank overlap with those of another. A message between nodes takes its turn at the NIC it leaves
through and at the one it arrives at: first come, first served within a round, earlier rounds first.
NICs work in both directions at once. Its first byte arrives ``latency`` after it has left, and a
message that nobody holds up streams through both NICs at once. Within a node the ports of the two
ranks take the place of the NICs. What the messages of a node, or of a group of nodes, share (its
memory, or the links that leave it) they share evenly in each round. A collective within a node
begins when its last rank has come.

All messages of a round are computed at once, as arrays: 2048 ranks and 2047 rounds take about a
second. Nothing is random: the same arguments give the same times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pccl_jax import schedule as schedules
from pccl_jax.errors import ConfigurationError
from pccl_jax.schedule import Action, Intra, Schedule, Step
from pccl_jax.simulate.cost import arrival_time, intra_time
from pccl_jax.simulate.machine import Machine
from pccl_jax.simulate.outline import Messages, messages, network_pace, node_pace, part
from pccl_jax.simulate.queues import Queue
from pccl_jax.types import Collective

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Simulation:
    """What :func:`simulate` found.

    Attributes:
        seconds: until the last rank is done.
        finish_s: float64[ranks], when each is.
        messages: how many were sent.
        network_bytes: bytes that crossed between nodes, of the whole group.
    """

    seconds: float
    finish_s: Floats
    messages: int
    network_bytes: float


def simulate(
    collective: Collective,
    algorithm: str,
    nbytes: float,
    nodes: int,
    local: int,
    machine: Machine,
) -> Simulation:
    """Plays ``collective`` by ``algorithm`` among ``nodes * local`` ranks.

    Args:
        collective: which.
        algorithm: a registered algorithm; its schedule is built and checked.
        nbytes: bytes of the larger of operand and result on each rank.
        nodes: nodes that the group spans.
        local: ranks of the group on each.
        machine: what it runs on.

    Raises:
        ConfigurationError: for an unknown algorithm, one without a schedule of its own (``mpi``),
            one that lacks the collective, a negative size or an empty group.
        ScheduleError: where a registered builder's schedule is wrong.

    Example:
        >>> from pccl_jax.simulate import load_machine, simulate
        >>> from pccl_jax.types import Collective
        >>> run = simulate(Collective.ALL_GATHER, "rec", 1 << 20, 4, 2, load_machine("cluster"))
        >>> run.messages
        24
    """
    if nbytes < 0:
        raise ConfigurationError(f"got {nbytes} bytes, expected no negative size")
    schedule = schedules.build(algorithm, collective, nodes, local)
    if any(isinstance(phase, schedules.Vendor | schedules.Inter) for phase in schedule.phases):
        raise ConfigurationError(
            f"{algorithm!r} is somebody else's collective and has no schedule to play; estimate() "
            "has a model of it"
        )
    return _Run(schedule, nbytes, local, machine).play()


class _Run:
    """The times of one simulation while it goes on."""

    def __init__(self, schedule: Schedule, nbytes: float, local: int, machine: Machine) -> None:
        self._schedule, self._nbytes, self._machine = schedule, nbytes, machine
        self._local, self._nodes = local, schedule.ranks // local
        ranks, nics = schedule.ranks, self._nodes * machine.nics_per_node
        self._ready = np.full(ranks, machine.launch_s if schedule.phases else 0.0)
        self._nics = np.zeros(nics), np.zeros(nics)
        self._out, self._into = np.zeros(ranks), np.zeros(ranks)
        self._messages, self._network_bytes = 0, 0.0

    def play(self) -> Simulation:
        for phase in self._schedule.phases:
            if isinstance(phase, Intra):
                self._within(phase)
            elif isinstance(phase, Step):
                self._step(phase)
        # A rank that only sends is done when its message has left.
        seconds = max(float(self._ready.max()), *(float(free.max()) for free in self._nics))
        return Simulation(seconds, self._ready, self._messages, self._network_bytes)

    def _within(self, phase: Intra) -> None:
        took_s = intra_time(phase, self._nbytes, self._nodes, self._local, self._machine)
        by_node = self._ready.reshape(self._nodes, self._local)
        by_node[:] = by_node.max(axis=1, keepdims=True) + took_s

    def _step(self, step: Step) -> None:
        m = messages(self._schedule, step, self._local, self._machine)
        links = self._links(m, step)
        for _ in range(step.times):
            sent = self._ready[m.senders] + self._machine.overhead_s
            self._ready[m.senders] = sent
            for link in links:
                arrived = link.carry(sent[link.which])
                receivers = m.receivers[link.which]
                self._ready[receivers] = np.maximum(self._ready[receivers], arrived)
        self._messages += step.times * m.senders.size
        crossing = float(m.crosses.sum()) * part(self._schedule, step)
        self._network_bytes += step.times * crossing * self._nbytes

    def _links(self, m: Messages, step: Step) -> list[_Link]:
        """The ways that the messages of ``step`` take, those that some message takes."""
        nbytes, machine = part(self._schedule, step) * self._nbytes, self._machine
        far, near = np.flatnonzero(m.crosses), np.flatnonzero(~m.crosses)
        links = []
        if far.size:
            out, into = Queue(m.nic_out[far], self._nics[0]), Queue(m.nic_in[far], self._nics[1])
            service = nbytes * network_pace(m, machine)[far]
            links.append(_Link(far, out, into, machine.network.latency_s, service))
        if near.size:
            out, into = Queue(m.senders[near], self._out), Queue(m.receivers[near], self._into)
            service = nbytes * node_pace(m, self._local, machine)[near]
            links.append(_Link(near, out, into, machine.node.latency_s, service))
        if step.action is not Action.COPY and nbytes:
            for link in links:
                pace = link.service_s / nbytes
                whole_s = arrival_time(nbytes, pace, 1 / machine.reduce_Bps, machine)
                link.reduction_s = whole_s - link.service_s
        return links


@dataclass
class _Link:
    """A kind of way that messages of a step take.

    Attributes:
        which: their positions among the messages of the step.
        out: where they leave.
        into: where they arrive.
        latency_s: of the way.
        service_s: float64[n], for which each keeps ``out`` and ``into`` busy.
        reduction_s: float64[n], until each is reduced, once it is there.
    """

    which: npt.NDArray[np.int64]
    out: Queue
    into: Queue
    latency_s: float
    service_s: Floats
    reduction_s: Floats | float = 0.0

    def carry(self, sent: Floats) -> Floats:
        """float64[n]: when each message that was posted at ``sent`` is there, and reduced."""
        begun = self.out.serve(sent, self.service_s) - self.service_s
        arrived = self.into.serve(begun + self.latency_s, self.service_s)
        return arrived + self.reduction_s
