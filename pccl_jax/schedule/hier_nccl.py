"""NCCL's own collectives, within each node and between nodes: no message of ours.

Restrictions: on GPUs only; the same number of ranks on every node.
Phases, N nodes of L ranks: the all-gather runs NCCL's inside each of the L rank-aligned groups of
    N ranks, all at once, so that every NIC of a node works; then NCCL's among the ranks of
    a node. The reduce-scatter is its transpose; the all-reduce is a reduce-scatter within the
    node, an all-reduce between nodes, an all-gather within the node.
Steps between nodes: NCCL's choice; N - 1 (ring), or log2 N (PAT, which NCCL takes only where there
    is one rank a node, as in a rank-aligned group; tree, for all-reduce).
Bytes sent per rank, M = bytes of the whole vector: as ``hier_ring``.
Cost: NCCL's of M / L among N ranks, plus NCCL's of M among L ranks.
Source: "New scaling algorithm and initialization with NVIDIA Collective Communications Library
    2.23", NVIDIA technical blog, 2025.
"""

from __future__ import annotations

from pccl_jax.schedule.ir import Inter, Intra, Schedule
from pccl_jax.types import Collective

HIER_NCCL = "hier_nccl"


def build_hier_nccl(collective: Collective, nodes: int, local: int) -> Schedule:
    """The schedule of ``collective`` on ``nodes`` nodes of ``local`` ranks.

    An all-reduce that has only one level moves the vector whole.
    """
    split = True
    phases: tuple[Intra | Inter, ...]
    if collective is Collective.ALL_GATHER:
        phases = (Inter(collective), Intra(collective))
    elif collective is Collective.REDUCE_SCATTER:
        phases = (Intra(collective), Inter(collective))
    elif nodes > 1 and local > 1:
        scatter, gather = Collective.REDUCE_SCATTER, Collective.ALL_GATHER
        phases = (Intra(scatter), Inter(collective), Intra(gather))
    else:
        split = False
        phases = (Intra(collective), Inter(collective))
    needed = tuple(p for p in phases if (local if isinstance(p, Intra) else nodes) > 1)
    return Schedule(collective, HIER_NCCL, nodes, local, split, needed)
