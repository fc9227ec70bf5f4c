"""All-reduce in the fewest rounds: recursive doubling of the whole vector.

Restrictions: all-reduce only; the same number of ranks on every node.
Phases, N nodes of L ranks: the ranks of a node all-reduce; then, in every rank-aligned
    group, rank r exchanges its whole partial result with r xor 1, r xor 2, r xor 4, ...
    Where N is no power of two, the N - p ranks beyond the greatest power of two p first
    fold theirs into rank r - p, wait, and are sent the result.
Steps between nodes: log2 N, or floor(log2 N) + 2.
Bytes sent per rank, M = bytes of the whole vector: M log2 N, against 2 M for the
    algorithms that split it, so only small vectors profit.
Cost: log2 N (alpha + M beta), two more for the fold, plus the all-reduce within the node.
Source: Thakur, Rabenseifner and Gropp, 2005.
"""

from __future__ import annotations

from pccl_jax.schedule.ir import Action, Index, Intra, Schedule, Step
from pccl_jax.schedule.registry import register
from pccl_jax.types import Collective


def build(collective: Collective, nodes: int, local: int) -> Schedule:
    """The all-reduce on ``nodes`` nodes of ``local`` ranks; the vector is not split."""
    within = (Intra(Collective.ALL_REDUCE),) if local > 1 else ()
    return Schedule(
        collective=collective,
        algorithm="latency",
        nodes=nodes,
        local=local,
        split=False,
        phases=within + _between(nodes),
    )


def _between(nodes: int) -> tuple[Step, ...]:
    doublings = nodes.bit_length() - 1
    power = 1 << doublings
    extra = nodes - power
    steps = [_step(Index(flip=1 << k), Action.COMBINE, (0, power)) for k in range(doublings)]
    if extra:
        fold = _step(Index(add=-power), Action.REDUCE, (power, nodes))
        unfold = _step(Index(add=power), Action.COPY, (0, extra))
        steps = [fold, *steps, unfold]
    return tuple(steps)


def _step(to: Index, action: Action, senders: tuple[int, int]) -> Step:
    return Step(to=to, first=Index(keep=0), count=1, action=action, senders=senders)


register("latency", build, [Collective.ALL_REDUCE])
