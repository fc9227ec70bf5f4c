"""What a schedule asks of links and NICs, read off its phases once for a group's shape.

A :class:`Load` describes the ``times`` rounds of one step. Its numbers hold for any size, so that
an estimate is arithmetic on a few of them. The ranks are those of ``nodes`` nodes with ``local``
ranks each, whether the schedule tells nodes apart or not: ``rank = node * local + index``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pccl_jax.schedule import Action, Schedule, Step
from pccl_jax.simulate.machine import Machine

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Load:
    """The rounds of one step.

    Attributes:
        times: number of rounds.
        part: bytes of a message as a part of the whole vector.
        reduces: whether the receiver reduces what it receives.
        network_hops: most messages between nodes on a path of ``times`` messages in which each
            waits for the one before.
        nic_messages: most messages that go through one NIC in one direction in a round.
        nic_pace: seconds that a byte takes at the NIC that is slowed most.
        node_pace: seconds that a byte takes within the node with most messages; 0 without any.
    """

    times: int
    part: float
    reduces: bool
    network_hops: int
    nic_messages: int
    nic_pace: float
    node_pace: float


@dataclass(frozen=True)
class Messages:
    """Who sends to whom in each round of a step; one array element a message.

    Attributes:
        senders: ranks of the whole group, in ascending order.
        receivers: whom each sends to.
        crosses: whether it goes to another node.
        nic_out: number of the NIC it leaves through, counted over all nodes.
        nic_in: number of the NIC it arrives at.
        far: whether it goes to another group of nodes.
        group_out: number of the group it leaves.
        group_in: number of the group it arrives at.
    """

    senders: Ints
    receivers: Ints
    crosses: npt.NDArray[np.bool_]
    nic_out: Ints
    nic_in: Ints
    far: npt.NDArray[np.bool_]
    group_out: Ints
    group_in: Ints


def messages(schedule: Schedule, step: Step, local: int, machine: Machine) -> Messages:
    """The messages of every round of ``step``, in all rank-aligned groups.

    Args:
        schedule: the one that has the step.
        step: which.
        local: ranks of the group on each node. It differs from ``schedule.local`` where the
            algorithm is flat.
        machine: for NICs and groups of nodes.
    """
    nics = machine.nics_per_node
    places = np.arange(*step.senders)
    index = np.arange(schedule.local)
    senders = (places[:, None] * schedule.local + index).ravel()
    receivers = (step.to.at(places, schedule.nodes)[:, None] * schedule.local + index).ravel()
    from_node, to_node = senders // local, receivers // local
    nic_out = from_node * nics + senders % local % nics
    nic_in = to_node * nics + receivers % local % nics
    size = machine.network.group_nodes or schedule.ranks
    group_out, group_in = from_node // size, to_node // size
    far = group_out != group_in
    crosses = from_node != to_node
    return Messages(senders, receivers, crosses, nic_out, nic_in, far, group_out, group_in)


def part(schedule: Schedule, step: Step) -> float:
    """Bytes of a message of ``step`` as a part of the whole vector."""
    return step.count / schedule.ranks if schedule.split else 1.0


def load(schedule: Schedule, step: Step, local: int, machine: Machine) -> Load:
    """What the rounds of ``step`` ask of the busiest NIC, node and path."""
    m = messages(schedule, step, local, machine)
    return Load(
        times=step.times,
        part=part(schedule, step),
        reduces=step.action is not Action.COPY,
        network_hops=_most_hops(m, schedule.ranks, step.times),
        nic_messages=max(_most(m.nic_out[m.crosses]), _most(m.nic_in[m.crosses])),
        nic_pace=float(network_pace(m, machine).max()),
        node_pace=float(node_pace(m, local, machine).max()),
    )


def network_pace(m: Messages, machine: Machine) -> Floats:
    """float64[messages]: seconds that a byte takes through a NIC; 0 for messages within a node.

    The NICs that send to other groups of nodes at once share the links that leave the group, and
    likewise those that receive.
    """
    network = machine.network
    pace = np.where(m.crosses, 1 / network.bandwidth_Bps, 0.0)
    for groups, nics in ((m.group_out, m.nic_out), (m.group_in, m.nic_in)):
        busy = np.unique(np.stack((groups, nics))[:, m.far], axis=1)[0]
        if busy.size:
            sharing = np.bincount(busy)[groups[m.far]]
            pace[m.far] = np.maximum(pace[m.far], sharing / network.group_Bps)
    return pace


def node_pace(m: Messages, local: int, machine: Machine) -> Floats:
    """float64[messages]: seconds that a byte takes within a node; 0 for messages between nodes."""
    pace = np.zeros(m.senders.size)
    near = ~m.crosses
    if near.any():
        nodes = m.senders[near] // local
        sharing = np.bincount(nodes)[nodes]
        node = machine.node
        pace[near] = np.maximum(1 / node.bandwidth_Bps, sharing / node.shared_Bps)
    return pace


def _most(values: Ints) -> int:
    return int(np.bincount(values).max()) if values.size else 0


def _most_hops(m: Messages, ranks: int, times: int) -> int:
    """Most messages between nodes on a chain of ``times``, by repeated doubling of the chain."""
    if times == 1:
        return int(m.crosses.any())
    to = np.arange(ranks)
    to[m.senders] = m.receivers
    hops = np.zeros(ranks, dtype=np.int64)
    hops[m.senders] = m.crosses
    total, at = np.zeros(ranks, dtype=np.int64), np.arange(ranks)
    while times:
        if times & 1:
            total, at = total + hops[at], to[at]
        hops, to = hops + hops[to], to[to]
        times >>= 1
    return int(total.max())
