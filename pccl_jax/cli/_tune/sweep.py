"""What is measured for a model: every algorithm, on many sizes, in groups of every size."""

from __future__ import annotations

import argparse

from pccl_jax import schedule
from pccl_jax.cli._bench import arguments
from pccl_jax.cli._bench.settings import Settings
from pccl_jax.errors import ConfigurationError

_DEVICES = (2, 4, 8)
_QUICK_DEVICES = (2, 4)
#: Rounds at least, seconds at least and at most per case.
THOROUGH, QUICK = (12, 0.5, 5.0), (6, 0.05, 0.5)
_QUICK_SIZES = (1 << 10, 16 << 10, 256 << 10, 4 << 20)


def _sizes() -> tuple[int, ...]:
    """256 B to 64 MiB: powers of four, and between them sizes that are no round number."""
    return tuple(size for e in range(8, 27, 2) for size in (1 << e, (2 << e) + (1 << e) // 8 + 12))[
        :-1
    ]


def plans(args: argparse.Namespace, processes: int) -> list[Settings]:
    """The sweep, for each number of devices and each kind of nodes; alike in every process.

    In one process each number of devices is one group. Across processes the devices are divided
    into groups of every size that divides their number. Nodes are emulated last.

    Raises:
        ConfigurationError: where several numbers of devices were asked for across processes, or no
            group would have two ranks.
    """
    numbers = arguments.devices(args, processes, _QUICK_DEVICES if args.quick else _DEVICES)
    made = []
    for per_node in (None, *args.ranks_per_node):
        for devices in numbers:
            groups = _groups(args, devices, processes, per_node)
            if groups:
                made.append(_settings(args, devices, processes, groups, per_node))
    if not made:
        raise ConfigurationError(
            "there is nothing to measure: a group needs at least 2 ranks; give more --devices, or "
            "start more processes"
        )
    return made


def _groups(
    args: argparse.Namespace, devices: int, processes: int, per_node: int | None
) -> tuple[int, ...]:
    """Sizes of groups; with emulated nodes only those that span several whole ones."""
    total = devices * processes
    sizes = [n for n in range(2, total + 1) if total % n == 0] if processes > 1 else [total]
    wanted = [n for n in sizes if n > 1 and (args.ranks is None or n in args.ranks)]
    return tuple(n for n in wanted if per_node is None or (n > per_node and n % per_node == 0))


def _settings(
    args: argparse.Namespace,
    devices: int,
    processes: int,
    groups: tuple[int, ...],
    per_node: int | None,
) -> Settings:
    return Settings(
        devices=devices,
        collectives=args.collectives,
        sizes=args.sizes or (_QUICK_SIZES if args.quick else _sizes()),
        dtypes=args.dtypes,
        algorithms=(*schedule.names(), "mpi"),
        processes=processes,
        groups=groups,
        ranks_per_node=per_node,
        **arguments.times(args, QUICK if args.quick else THOROUGH),
    )
