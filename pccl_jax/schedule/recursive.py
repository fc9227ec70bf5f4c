"""Recursive doubling, and Bruck's algorithm where the ranks are no power of two.

Restrictions: none.
Steps, n ranks: ceil(log2 n) (all-gather, reduce-scatter), twice that (all-reduce).
Bytes sent per rank, M = bytes of the whole vector: M (n - 1) / n, the least possible, and
    twice that for all-reduce.
Cost: ceil(log2 n) alpha + M (n - 1) / n beta. Distant ranks talk in large messages, so the
    network between them decides how well it does against the ring for large vectors.
Source: Thakur, Rabenseifner and Gropp 2005 (recursive doubling and halving); Bruck et al.,
    "Efficient Algorithms for All-to-All Communications in Multiport Message-Passing
    Systems", 1997.

Before a step of distance d, rank r holds d chunks: with doubling, the aligned block that
contains chunk r; with Bruck, chunks r, r + 1, ..., r + d - 1. Chunks are named by their
final place, so Bruck's needs no rotation afterwards. Its last step is partial: only
n - d chunks are still missing.
"""

from __future__ import annotations

from pccl_jax.schedule.ir import Action, Index, Step
from pccl_jax.schedule.registry import from_all_gather


def all_gather_steps(nodes: int) -> tuple[Step, ...]:
    """ceil(log2 nodes) steps; the distance doubles from one to the next."""
    power_of_two = nodes & (nodes - 1) == 0
    distances = [1 << k for k in range((nodes - 1).bit_length())]
    make = _doubling if power_of_two else _bruck
    return tuple(make(nodes, distance) for distance in distances)


def _doubling(nodes: int, distance: int) -> Step:
    return Step(
        to=Index(flip=distance),
        first=Index(keep=-distance),
        count=distance,
        action=Action.COPY,
        senders=(0, nodes),
    )


def _bruck(nodes: int, distance: int) -> Step:
    return Step(
        to=Index(add=-distance),
        first=Index(),
        count=min(distance, nodes - distance),
        action=Action.COPY,
        senders=(0, nodes),
    )


from_all_gather("rec", all_gather_steps, hierarchical=False)
