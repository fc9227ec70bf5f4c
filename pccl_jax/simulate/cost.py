"""Closed-form time of an algorithm on a machine: alpha and beta, read off its schedule.

A step of T rounds with messages of b bytes takes the longer of

* its longest chain: T messages, each sent once the one before it has arrived,
  ``sum of (overhead + latency + b / bandwidth)`` over the links of the chain;
* its busiest resource: a NIC that k messages share in each round needs ``T k b / bandwidth``, a
  rank that reduces ``T b / reduce rate``.

Bandwidth is less where the messages of a node share its memory, or the NICs of a group of nodes the
links that leave it.

Steps follow each other. So a flat ring pays the network's latency once a node, as in NCCL's own
model, and recursive doubling of all ranks pays for the NICs that the ranks of a node share.
Reduction overlaps with arrival except for one segment. Latency and bandwidth are Hockney's
(Parallel Computing 20, 1994), the overhead is that of LogP (Culler et al., 1993).

:mod:`pccl_jax.simulate.engine` plays the same rounds message by message; the two agree exactly
where nothing is shared. On the machines that come along the estimate is mostly the larger, as it
lets no steps overlap; docs/scaling.md says by how much.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pccl_jax import schedule as schedules
from pccl_jax.errors import ConfigurationError
from pccl_jax.schedule import Intra, Step
from pccl_jax.simulate.machine import Machine
from pccl_jax.simulate.outline import load
from pccl_jax.simulate.vendor import VENDORS, nccl_between, vendor_estimate
from pccl_jax.types import Collective

Floats = npt.NDArray[np.float64]


def estimate(
    collective: Collective,
    algorithm: str,
    nbytes: float,
    nodes: int,
    local: int,
    machine: Machine,
) -> float:
    """Seconds that ``collective`` takes by ``algorithm`` among ``nodes * local`` ranks.

    Args:
        collective: which.
        algorithm: a registered algorithm, or a model of somebody else's: ``nccl`` (where the
            machine has its figures), ``xla`` and ``mpi``.
        nbytes: bytes of the larger of operand and result on each rank.
        nodes: nodes that the group spans; where its nodes have different numbers of ranks, the
            number of ranks.
        local: ranks of the group on each of them; 1 where they differ.
        machine: what it runs on. Groups larger than the machine are estimated all the same.

    The first call for a shape builds the schedule and reads it (milliseconds for 2048 ranks);
    later ones, for any size, take some 50 microseconds.

    Raises:
        ConfigurationError: for an unknown algorithm, one that lacks the collective, a negative
            size, an empty group, or ``nccl`` on a machine without its figures.
        ScheduleError: where a registered builder fails.

    Example:
        >>> from pccl_jax.simulate import estimate, load_machine
        >>> from pccl_jax.types import Collective
        >>> perlmutter = load_machine("perlmutter")
        >>> flat = estimate(Collective.ALL_GATHER, "nccl", 64 << 20, 512, 4, perlmutter)
        >>> ours = estimate(Collective.ALL_GATHER, "hier_rec", 64 << 20, 512, 4, perlmutter)
        >>> flat > 2 * ours
        True
    """
    if nbytes < 0 or nodes < 1 or local < 1:
        raise ConfigurationError(
            f"got {nbytes} bytes on {nodes} nodes x {local} ranks, expected no negative size and "
            "at least 1 x 1"
        )
    if algorithm in VENDORS:
        return vendor_estimate(collective, algorithm, nbytes, nodes, local, machine, estimate)
    if algorithm == "hier_nccl" and machine.nccl:
        return _hier_nccl(collective, nbytes, nodes, local, machine)
    if algorithm == "hier_nccl":  # the nearest of what there are figures for
        algorithm = "hier_ring"
    schedule = schedules.draft(algorithm, collective, nodes, local)
    if any(isinstance(phase, schedules.Inter) for phase in schedule.phases):
        raise ConfigurationError(
            f"{algorithm!r} leaves the messages between nodes to a library, of which there is no "
            "model; compare with 'nccl', which models NCCL's own collectives"
        )
    return _outline(_ById(schedule), local, machine).seconds(nbytes)


def _hier_nccl(
    collective: Collective, nbytes: float, nodes: int, local: int, machine: Machine
) -> float:
    """Each phase by NCCL's own cost model; each starts an operation of NCCL's, with its base."""
    seconds = 0.0
    for phase in schedules.draft("hier_nccl", collective, nodes, local).phases:
        if isinstance(phase, schedules.Inter):
            seconds += nccl_between(phase.collective, nbytes / local, nodes, local, machine)
        elif isinstance(phase, Intra):
            seconds += vendor_estimate(
                phase.collective, "nccl", nbytes, 1, local, machine, estimate
            ) + shuffle_time(phase, nbytes, nodes, machine)
    return seconds


def shuffle_time(phase: Intra, nbytes: float, nodes: int, machine: Machine) -> float:
    """Seconds of the pass over the vector beside a phase within nodes, 0 where there is none."""
    shuffled = machine.shuffles and nodes > 1 and phase.collective is not Collective.ALL_REDUCE
    return nbytes / machine.copy_Bps if shuffled else 0.0


def intra_time(phase: Intra, nbytes: float, nodes: int, local: int, machine: Machine) -> float:
    """Seconds of a collective of ``nbytes`` (the whole vector) among the ranks of each node.

    A gather, and a scatter, moves ``nbytes (local - 1) / local`` bytes to each rank; the
    all-reduce does both. With ``machine.shuffles`` a pass over the vector follows or precedes
    where there is a phase between nodes.
    """
    node = machine.node
    moved = nbytes * (local - 1) / local
    per_byte = max(1 / node.bandwidth_Bps, local / node.shared_Bps)
    latency_s = node.latency_s * (1 if node.direct else local - 1)
    gather_s = latency_s + moved * per_byte
    scatter_s = latency_s + moved * max(per_byte, 1 / machine.reduce_Bps)
    seconds = {
        Collective.ALL_GATHER: gather_s,
        Collective.REDUCE_SCATTER: scatter_s,
        Collective.ALL_REDUCE: gather_s + scatter_s,
    }[phase.collective]
    return seconds + shuffle_time(phase, nbytes, nodes, machine)


def arrival_time(
    nbytes: float | Floats, per_byte: Floats, reduce: float | Floats, machine: Machine
) -> Floats:
    """float64[n]: seconds from a message's first byte to its last, reduced on the way where asked.

    Args:
        nbytes: of each message: one for all, or float64[n].
        per_byte: float64[n], seconds a byte takes on the link.
        reduce: seconds a byte takes to reduce, one for all or float64[n]; 0 where it is only
            stored.
        machine: for the size of a segment.
    """
    slower, faster = np.maximum(per_byte, reduce), np.minimum(per_byte, reduce)
    seconds: Floats = nbytes * slower + np.minimum(nbytes, machine.segment_bytes) * faster
    return seconds


@dataclass(frozen=True)
class _Outline:
    """The loads of a schedule as columns, one row a step, for one machine."""

    machine: Machine
    nodes: int
    local: int
    intra: tuple[Intra, ...]
    times: Floats
    part: Floats
    reduce: Floats
    crossing: Floats
    staying: Floats
    crosses: npt.NDArray[np.bool_]
    nic_load: Floats
    nic_pace: Floats
    node_pace: Floats

    def seconds(self, nbytes: float) -> float:
        m = self.machine
        if not self.intra and not self.times.size:
            return 0.0
        within_s = sum(intra_time(p, nbytes, self.nodes, self.local, m) for p in self.intra)
        between_s = float(self._steps(nbytes).sum()) if self.times.size else 0.0
        return m.launch_s + within_s + between_s

    def _steps(self, nbytes: float) -> Floats:
        """float64[steps]: seconds of each."""
        m, b = self.machine, nbytes * self.part
        crossing_s = m.network.latency_s + arrival_time(b, self.nic_pace, self.reduce, m)
        staying_s = m.node.latency_s + arrival_time(b, self.node_pace, self.reduce, m)
        chain = self.crossing * crossing_s + self.staying * staying_s + self.times * m.overhead_s
        busiest = np.maximum(self.nic_load * self.nic_pace, self.node_pace)
        latency = np.where(self.crosses, m.network.latency_s, m.node.latency_s)
        busy = (self.times - 1) * b * np.maximum(busiest, self.reduce) + latency + m.overhead_s
        busy += arrival_time(b, busiest, self.reduce, m)
        longer: Floats = np.maximum(chain, busy)
        return longer


class _ById:
    """A schedule compared by identity: comparing its phases would cost more than the estimate."""

    def __init__(self, schedule: schedules.Schedule) -> None:
        self.schedule = schedule

    def __hash__(self) -> int:
        return id(self.schedule)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and self.schedule is other.schedule


@functools.lru_cache(maxsize=4096)
def _outline(key: _ById, local: int, machine: Machine) -> _Outline:
    schedule = key.schedule
    steps = [phase for phase in schedule.phases if isinstance(phase, Step)]
    loads = [load(schedule, step, local, machine) for step in steps]

    def column(*names: str) -> list[Floats]:
        return [np.array([getattr(x, name) for x in loads], dtype=np.float64) for name in names]

    times, part, hops, reduces = column("times", "part", "network_hops", "reduces")
    nic_load, nic_pace, node_pace = column("nic_messages", "nic_pace", "node_pace")
    return _Outline(
        machine=machine,
        nodes=schedule.nodes,
        local=schedule.local,
        intra=tuple(phase for phase in schedule.phases if isinstance(phase, Intra)),
        times=times,
        part=part,
        reduce=reduces / machine.reduce_Bps,
        crossing=hops,
        staying=times - hops,
        crosses=nic_load > 0,
        nic_load=nic_load,
        nic_pace=nic_pace,
        node_pace=node_pace,
    )
