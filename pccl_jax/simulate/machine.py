"""A machine as the models see it: nodes, links and rates, all in SI units.

Three levels. *Memory*: what one rank copies and reduces by itself. *Node*: between the ranks of a
node. *Network*: between nodes, through the NICs; local rank ``i`` drives NIC ``i mod nics``. A
message of b bytes takes ``latency + b / bandwidth`` on an idle link (Hockney's alpha and beta);
ranks that share a NIC take turns, and so do the nodes of a group at the links that leave it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Node:
    """What connects the ranks of a node.

    Attributes:
        latency_s: seconds from a send to its arrival, for no bytes.
        bandwidth_Bps: bytes per second of one rank in each direction.
        shared_Bps: bytes per second that all ranks of a node move together; infinite where each
            has links of its own.
        direct: whether a collective within a node is one step in which everybody reads from
            everybody (shared memory), rather than ``local - 1`` steps of a ring.
    """

    latency_s: float
    bandwidth_Bps: float
    shared_Bps: float = math.inf
    direct: bool = True


@dataclass(frozen=True)
class Network:
    """What connects the nodes.

    Attributes:
        latency_s: seconds from a send to its arrival, for no bytes.
        bandwidth_Bps: bytes per second of a NIC in each direction.
        group_nodes: nodes of a group (a dragonfly's, or a rack); 0 where there are none.
        group_Bps: bytes per second of all links that leave a group, in each direction, used
            evenly.
    """

    latency_s: float
    bandwidth_Bps: float
    group_nodes: int = 0
    group_Bps: float = math.inf


@dataclass(frozen=True)
class Protocol:
    """One of NCCL's wire protocols, as its own cost model describes it.

    Attributes:
        protocol: ``LL``, ``LL128`` or ``Simple``.
        base_s: seconds once, in a ring.
        node_s: seconds a hop within a node, in a ring.
        network_s: seconds a hop between nodes, in a ring.
        post_s: seconds to post a network operation: in a ring over several nodes no hop takes less.
        bandwidth_share: part of the bandwidth that carries data, in a ring.
        factors: further parts of it by size: the i-th for 64 * 2**i bytes and more, the last for
            all larger ones; none where it is empty.
        tree_base_s: as ``base_s``, in a tree; likewise the rest.
        tree_node_s: as ``node_s``.
        tree_network_s: as ``network_s``.
        tree_bandwidth_share: as ``bandwidth_share``.
        tree_factors: as ``factors``.
    """

    protocol: str
    base_s: float
    node_s: float
    network_s: float
    post_s: float
    bandwidth_share: float
    factors: tuple[float, ...]
    tree_base_s: float
    tree_node_s: float
    tree_network_s: float
    tree_bandwidth_share: float
    tree_factors: tuple[float, ...]


@dataclass(frozen=True)
class Machine:
    """A kind of machine; :func:`pccl_jax.simulate.load_machine` reads one from a file.

    Attributes:
        name: e.g. ``perlmutter``.
        nodes: how many there are.
        ranks_per_node: ranks (devices) of a full node.
        nics_per_node: NICs of a node.
        node: links within a node.
        network: links between nodes.
        overhead_s: seconds for which a rank is busy with each message that it sends.
        launch_s: seconds to start a collective, whatever its size.
        reduce_Bps: bytes per second of each operand of a reduction of two, by one rank.
        copy_Bps: bytes per second that one rank copies in its memory.
        segment_bytes: a message is reduced in pieces of this size as it arrives.
        shuffles: whether blocks are brought to their place in a pass of their own between the
            phase within the node and that between nodes.
        nccl: NCCL's protocols, for the model of NCCL's own collectives; empty where it has none.
        description: for people.
        sources: for people: where each figure of the file comes from, by the name it has there.
    """

    name: str
    nodes: int
    ranks_per_node: int
    nics_per_node: int
    node: Node
    network: Network
    overhead_s: float
    launch_s: float
    reduce_Bps: float
    copy_Bps: float
    segment_bytes: float
    shuffles: bool = False
    nccl: tuple[Protocol, ...] = ()
    description: str = field(default="", compare=False)
    sources: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
