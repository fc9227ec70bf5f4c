"""The ring: every rank passes on to its right what it last received from its left.

Restrictions: none.
Steps, n ranks: n - 1 (all-gather, reduce-scatter), 2 (n - 1) (all-reduce).
Bytes sent per rank, M = bytes of the whole vector: M (n - 1) / n, the least possible, and
    twice that for all-reduce.
Cost: (n - 1) alpha + M (n - 1) / n beta. Only neighbours talk, so it suits large messages
    and few ranks; its latency grows with the number of ranks.
Source: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
    Operations in MPICH", 2005. NCCL's and RCCL's default.
"""

from __future__ import annotations

from pccl_jax.schedule.ir import Action, Index, Step
from pccl_jax.schedule.registry import from_all_gather


def all_gather_steps(nodes: int) -> tuple[Step, ...]:
    """One repeated step: in round ``i``, rank ``r`` sends chunk ``r - i`` to ``r + 1``."""
    step = Step(
        to=Index(add=1),
        first=Index(),
        count=1,
        action=Action.COPY,
        senders=(0, nodes),
        times=nodes - 1,
        stride=-1,
    )
    return (step,)


from_all_gather("ring", all_gather_steps, hierarchical=False)
