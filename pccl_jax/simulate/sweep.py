"""Simulated times over sizes and groups: what a dispatcher can learn from without the machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pccl_jax import schedule as schedules
from pccl_jax.simulate.cost import estimate
from pccl_jax.simulate.engine import simulate
from pccl_jax.simulate.machine import Machine
from pccl_jax.simulate.vendor import VENDORS
from pccl_jax.types import Collective

#: 1 KiB to 1 GiB in powers of two, and sizes between them.
SIZES = tuple(
    sorted([1 << power for power in range(10, 31)] + [3 << power for power in range(11, 30, 3)])
)

#: Nodes of a group, powers of two and others, as far as the machine and ``MOST_RANKS`` go.
NODES = (1, 2, 3, 4, 8, 12, 16, 32, 48, 64, 128, 192, 256, 384, 512)

#: Larger groups are not simulated by default.
MOST_RANKS = 2048


@dataclass(frozen=True)
class Timing:
    """The time of one algorithm in one cell: ``nbytes`` on ``nodes`` nodes of ``local`` ranks."""

    collective: Collective
    algorithm: str
    nbytes: int
    nodes: int
    local: int
    seconds: float


def groups(machine: Machine) -> tuple[tuple[int, int], ...]:
    """(nodes, ranks on each) of groups that a program has: whole nodes, and one rank a node."""
    shapes = [
        (nodes, local)
        for local in dict.fromkeys((1, machine.ranks_per_node))
        for nodes in NODES
        if nodes <= machine.nodes and 1 < nodes * local <= MOST_RANKS
    ]
    return tuple(shapes)


def sweep(
    machine: Machine,
    collective: Collective,
    shapes: Sequence[tuple[int, int]],
    sizes: Sequence[int] = SIZES,
) -> Iterator[Timing]:
    """Every algorithm in every cell, ours played message by message, others by their model.

    Args:
        machine: what it runs on; ``nccl`` is among the algorithms where it has the figures, else
            ``xla`` and ``mpi``.
        collective: which.
        shapes: groups, e.g. :func:`groups`.
        sizes: bytes of the larger of operand and result on each rank.
    """
    theirs = ("nccl",) if machine.nccl else tuple(name for name in VENDORS if name != "nccl")
    for nodes, local in shapes:
        for nbytes in sizes:
            at = (nbytes, nodes, local)
            for name in schedules.names(collective):
                run = simulate(collective, name, *at, machine)
                yield Timing(collective, name, *at, run.seconds)
            for name in theirs:
                yield Timing(collective, name, *at, estimate(collective, name, *at, machine))
