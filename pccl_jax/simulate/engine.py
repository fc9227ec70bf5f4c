"""Plays a schedule on a machine, message by message.

Every rank keeps its own time. In a round it posts its message (``overhead``), and it goes on to
the next round once it has received; so ranks drift apart where links differ, and rounds of one
rank overlap with those of another. A message between nodes takes its turn at the NIC it leaves
through and at the one it arrives at, first come, first served within a round, earlier rounds
first; NICs work in both directions at once. Its first byte arrives ``latency`` after it has left,
and a message that nobody holds up streams through both NICs at once. Within a node the ports of the
two ranks take the place of the NICs, and the node's memory is one more server for all of them. A
collective within a node begins when its last rank has come.

All messages of a round are computed at once, as arrays: 2048 ranks and 2047 rounds take about a
second. Nothing is random: the same arguments give the same times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pccl_jax import schedule as schedules
from pccl_jax.errors import ConfigurationError
from pccl_jax.schedule import Action, Intra, Schedule, Step
from pccl_jax.simulate.cost import arrival_time, intra_time
from pccl_jax.simulate.machine import Machine
from pccl_jax.simulate.outline import Messages, messages, part
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
    if any(isinstance(phase, schedules.Vendor) for phase in schedule.phases):
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
        self._ports = np.zeros(ranks), np.zeros(ranks)
        self._memory = np.zeros(self._nodes)
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
        m = messages(self._schedule, step, self._local, self._machine.nics_per_node)
        nbytes = part(self._schedule, step) * self._nbytes
        links = [link for link in (self._network(m, nbytes), self._node(m, nbytes)) if link]
        reduces = step.action is not Action.COPY
        for _ in range(step.times):
            sent = self._ready[m.senders] + self._machine.overhead_s
            self._ready[m.senders] = sent
            for link in links:
                arrived = link.carry(sent[link.which], reduces)
                receivers = m.receivers[link.which]
                self._ready[receivers] = np.maximum(self._ready[receivers], arrived)
        self._messages += step.times * m.senders.size
        self._network_bytes += step.times * float(m.crosses.sum()) * nbytes

    def _network(self, m: Messages, nbytes: float) -> _Link | None:
        which = np.flatnonzero(m.crosses)
        network = self._machine.network
        out, into = (
            Queue(servers[which], free)
            for servers, free in zip((m.nic_out, m.nic_in), self._nics, strict=True)
        )
        link = _Link(which, out, into, None, nbytes, network.latency_s, 1 / network.bandwidth_Bps)
        return link.on(self._machine) if which.size else None

    def _node(self, m: Messages, nbytes: float) -> _Link | None:
        which = np.flatnonzero(~m.crosses)
        node = self._machine.node
        out, into = (
            Queue(ranks[which], free)
            for ranks, free in zip((m.senders, m.receivers), self._ports, strict=True)
        )
        shared = math.isfinite(node.shared_Bps)
        memory = Queue(m.senders[which] // self._local, self._memory) if shared else None
        link = _Link(which, out, into, memory, nbytes, node.latency_s, 1 / node.bandwidth_Bps)
        return link.on(self._machine) if which.size else None


@dataclass
class _Link:
    """A kind of way that messages of a step take, all of them alike.

    Attributes:
        which: their positions among the messages of the step.
        out: where they leave.
        into: where they arrive.
        memory: what else they all go through, if anything.
        nbytes: of each.
        latency_s: of the way.
        per_byte: seconds a byte takes.
    """

    which: npt.NDArray[np.int64]
    out: Queue
    into: Queue
    memory: Queue | None
    nbytes: float
    latency_s: float
    per_byte: float
    memory_s: float = 0.0
    reduction_s: float = 0.0

    def on(self, machine: Machine) -> _Link:
        """The link with what depends on the machine: times that are alike in all rounds."""
        b, gamma = np.array([self.nbytes]), np.array([1 / machine.reduce_Bps])
        whole = float(arrival_time(b, self.per_byte, gamma, machine)[0])
        self.reduction_s = whole - self.nbytes * self.per_byte
        self.memory_s = self.nbytes / machine.node.shared_Bps
        return self

    def carry(self, sent: Floats, reduces: bool) -> Floats:
        """float64[n]: when each message that was posted at ``sent`` is there, and reduced."""
        service = self.nbytes * self.per_byte
        left = self.out.serve(sent, service)
        arrived = self.into.serve(left - service + self.latency_s, service)
        if self.memory is not None:
            moved = self.memory.serve(sent, self.memory_s) + self.latency_s
            arrived = np.maximum(arrived, moved)
        return arrived + self.reduction_s if reduces else arrived
