"""The hierarchical algorithms of the PCCL paper: between nodes first, then within each.

Restrictions: the same number of ranks on every node.
Phases, N nodes of L ranks: the all-gather runs a ring (``hier_ring``) or recursive doubling
    (``hier_rec``) inside each of the L rank-aligned groups of N ranks, all at once, so that
    every NIC of a node works; then the ranks of a node gather from each other. The
    reduce-scatter is its transpose, the all-reduce the one after the other.
Steps between nodes: N - 1 (ring) or ceil(log2 N) (rec), twice that for all-reduce.
Bytes sent per rank, M = bytes of the whole vector: M / L (N - 1) / N between nodes and
    M (L - 1) / L within the node, each the least possible; twice that for all-reduce.
Cost: (N - 1 or ceil(log2 N)) alpha + M / L (N - 1) / N beta, plus
    (L - 1) alpha_node + M (L - 1) / L beta_node.
Source: "The Big Send-off: Scalable and Performant Collectives for Deep Learning",
    arXiv 2504.18658 (its PCCL_ring and PCCL_rec), here for any number of nodes.
"""

from __future__ import annotations

from pccl_jax.schedule import recursive, ring
from pccl_jax.schedule.registry import from_all_gather

from_all_gather("hier_ring", ring.all_gather_steps, hierarchical=True)
from_all_gather("hier_rec", recursive.all_gather_steps, hierarchical=True)
