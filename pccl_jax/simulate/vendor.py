"""Models of collectives that are not ours, for comparison and for the choice against them.

``nccl`` is NCCL's own cost model (src/graph/tuning.cc of github.com/NVIDIA/nccl, ncclTopoTuneModel
and ncclTopoGetAlgoTime), which is what NCCL itself chooses by: for n ranks on N nodes a ring takes

    base + (steps - N') node hop + N' network hop + nbytes steps / n / bandwidth

with steps = n - 1 and N' = N - 1, both twice for an all-reduce, which may also go over a tree:
``base + 2 ((n / N - 1) node hop + log2 N network hop) + 2 nbytes / bandwidth``. Each protocol (LL,
LL128, Simple) has its own constants and its own part of the bandwidth, which is that of all NICs
of the node together, or of a rank's links within it where that is less. A hop of a ring over
several nodes takes at least what posting to the network takes, and bandwidth is corrected by size.
Between nodes with one rank each, as in the rank-aligned groups of ``hier_nccl``, gathers and
scatters may go by PAT, in protocol Simple: ``8 us + log2 N network hop / 3.5 + N 2.8 us``, at 0.75
of the bandwidth. Left out: the plateau of rings, NVLink SHARP and in-network reduction.

``mpi`` is the better of a flat ring and flat recursive doubling (and of recursive doubling of the
whole vector for an all-reduce), as in MPICH and Open MPI (Thakur, Rabenseifner and Gropp, 2005).
``xla`` on CPU is Gloo, or within one process XLA's own, and taken as a flat ring.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from pccl_jax.errors import ConfigurationError
from pccl_jax.simulate.machine import Machine, Protocol
from pccl_jax.types import Collective

#: The names this module has a model for.
VENDORS = ("nccl", "xla", "mpi")

#: The type of :func:`pccl_jax.simulate.estimate`.
Estimate = Callable[[Collective, str, float, int, int, Machine], float]


def vendor_estimate(
    collective: Collective,
    vendor: str,
    nbytes: float,
    nodes: int,
    local: int,
    machine: Machine,
    estimate: Estimate,
) -> float:
    """Seconds by ``vendor``; arguments as for ``estimate``, which it is given to build upon.

    Raises:
        ConfigurationError: for ``nccl`` on a machine that has no figures for it.
    """
    if vendor == "nccl":
        return _nccl(collective, nbytes, nodes, local, machine)
    ring_s = estimate(collective, "ring", nbytes, nodes, local, machine)
    if vendor == "xla":
        return ring_s
    times_s = [ring_s, estimate(collective, "rec", nbytes, nodes, local, machine)]
    if collective is Collective.ALL_REDUCE:
        times_s.append(estimate(collective, "latency", nbytes, nodes * local, 1, machine))
    return min(times_s)


def _nccl(collective: Collective, nbytes: float, nodes: int, local: int, machine: Machine) -> float:
    if not machine.nccl:
        raise ConfigurationError(
            f"machine {machine.name!r} has no figures for NCCL: add the member 'nccl' to its "
            "file, or compare with 'mpi' or 'xla'"
        )
    if nodes * local == 1:
        return 0.0
    times = [_ring(p, collective, nbytes, nodes, local, machine) for p in machine.nccl]
    if collective is Collective.ALL_REDUCE:
        times += [_tree(p, nbytes, nodes, local, machine) for p in machine.nccl]
    return min(times)


#: NCCL's constants for PAT in tuning.cc, seconds: once, and for each rank; and its parts of a hop
#: and of the bandwidth.
_PAT_BASE_S, _PAT_RANK_S, _PAT_HOP, _PAT_SHARE = 8e-6, 2.8e-6, 1 / 3.5, 0.75


def nccl_between(
    collective: Collective, nbytes: float, nodes: int, local: int, machine: Machine
) -> float:
    """Seconds of NCCL's collective of ``nbytes`` in every rank-aligned group of a group at once.

    Each has one rank on each of ``nodes`` nodes; the ``local`` groups share a node's NICs. For the
    other arguments, and errors, see :func:`vendor_estimate`.
    """
    sharing = math.ceil(local / machine.nics_per_node)
    network = replace(machine.network, bandwidth_Bps=machine.network.bandwidth_Bps / sharing)
    machine = replace(machine, network=network)
    other_s = _nccl(collective, nbytes, nodes, 1, machine)
    if collective is Collective.ALL_REDUCE or nodes == 1:
        return other_s
    simple = [p for p in machine.nccl if p.protocol == "Simple"]
    return min([other_s, *(_pat(p, nbytes, nodes, machine) for p in simple)])


def _pat(p: Protocol, nbytes: float, nodes: int, machine: Machine) -> float:
    hops = math.floor(math.log2(nodes)) * _PAT_HOP
    latency_s = _PAT_BASE_S + hops * p.network_s + nodes * _PAT_RANK_S
    moved = nbytes * (nodes - 1) / nodes
    return latency_s + moved / (_bandwidth(nodes, 1, machine) * _PAT_SHARE)


def _bandwidth(nodes: int, local: int, machine: Machine) -> float:
    """Bytes per second through each rank: NCCL rotates its rings so that every NIC is used."""
    within = machine.node.bandwidth_Bps if local > 1 else math.inf
    nics = min(local, machine.nics_per_node)
    return min(within, nics * machine.network.bandwidth_Bps) if nodes > 1 else within


def _ring(
    p: Protocol, collective: Collective, nbytes: float, nodes: int, local: int, machine: Machine
) -> float:
    ways = 2 if collective is Collective.ALL_REDUCE else 1
    ranks = nodes * local
    steps, crossings = ways * (ranks - 1), ways * (nodes - 1)
    node_s = max(p.node_s, p.post_s) if nodes > 1 else p.node_s
    latency_s = p.base_s + (steps - crossings) * node_s + crossings * p.network_s
    return latency_s + nbytes * steps / ranks / (
        _bandwidth(nodes, local, machine) * p.bandwidth_share
    )


def _tree(p: Protocol, nbytes: float, nodes: int, local: int, machine: Machine) -> float:
    depth = math.floor(math.log2(nodes))
    latency_s = p.tree_base_s + 2 * ((local - 1) * p.tree_node_s + depth * p.tree_network_s)
    share = p.tree_bandwidth_share * _factor(p.tree_factors, nbytes)
    return latency_s + 2 * nbytes / (_bandwidth(nodes, local, machine) * share)


def _factor(factors: tuple[float, ...], nbytes: float) -> float:
    """What the size leaves of the bandwidth; sizes are counted in powers of two from 64 bytes."""
    power = max(0, int(nbytes) >> 6).bit_length() - 1
    return factors[min(max(power, 0), len(factors) - 1)] if factors else 1.0
