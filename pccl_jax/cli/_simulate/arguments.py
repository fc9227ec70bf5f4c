"""The options of ``pccl-jax simulate``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence

from pccl_jax import schedule
from pccl_jax.cli._bench.arguments import output_file
from pccl_jax.cli._bench.settings import parse_size
from pccl_jax.cli._plotting import plot_file
from pccl_jax.simulate import VENDORS, machine_names
from pccl_jax.types import Collective

COLLECTIVES = tuple(collective.label for collective in Collective)

#: What no range needs more of; a longer one is a slip of the pen.
_MOST_VALUES = 1000


def add(parser: argparse.ArgumentParser) -> None:
    """Declares every option."""
    option = parser.add_argument
    option(
        "--machine",
        default="perlmutter",
        metavar="NAME|FILE",
        help=f"{', '.join(machine_names())}, or a .json file; default perlmutter",
    )
    option("--list-machines", action="store_true", help="show the machines, and nothing else")
    option(
        "--collective",
        type=_names("collective", COLLECTIVES),
        default=COLLECTIVES,
        metavar="NAME,...",
        help=f"default {','.join(COLLECTIVES)}",
    )
    option(
        "--bytes",
        type=sizes,
        default=sizes("16M..1G"),
        metavar="RANGE",
        help="of the larger array on each rank: 1M,64M or 16M..1G (powers of two); default 16M..1G",
    )
    option(
        "--ranks",
        type=counts,
        default=counts("32..2048"),
        metavar="RANGE",
        help="e.g. 32,96 or 32..2048 (powers of two), the default; whole nodes, or less than one",
    )
    option(
        "--ranks-per-node",
        type=_count,
        metavar="N",
        help="default: all that the machine's nodes have",
    )
    option(
        "--algorithms",
        type=_names("algorithm", (*schedule.names(), *VENDORS)),
        metavar="NAME,...",
        help=f"of {','.join((*schedule.names(), *VENDORS))}; default all of ours, and nccl where "
        "the machine has its figures, else mpi",
    )
    option(
        "--closed-form",
        action="store_true",
        help="estimate as the dispatcher does, in microseconds a cell, instead of playing messages",
    )
    option(
        "--map",
        action="store_true",
        help="print only the best of ours and its gain over the rest, ranks by bytes",
    )
    option("--json", type=output_file, metavar="FILE", help="write every figure there")
    option("--plot", type=plot_file, metavar="FILE", help="draw times there (needs matplotlib)")
    option("--markdown", action="store_true", help="print tables for a document")


def sizes(text: str) -> tuple[int, ...]:
    """Bytes of a list or a range of sizes; K, M and G are powers of 1024.

    >>> sizes("1M..4M")
    (1048576, 2097152, 4194304)
    """
    return _values(text, _size)


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers of a list or a range.

    >>> counts("8,32..128")
    (8, 32, 64, 128)
    """
    return _values(text, _count)


def _values(text: str, parse: Callable[[str], int]) -> tuple[int, ...]:
    values: list[int] = []
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        low, dots, high = piece.partition("..")
        first = parse(low)
        last = parse(high) if dots else first
        if last < first:
            raise argparse.ArgumentTypeError(f"range {piece!r} ends before it begins")
        while first <= last:
            values.append(first)
            first *= 2
    if not values or len(values) > _MOST_VALUES:
        raise argparse.ArgumentTypeError(
            f"{text[:60]!r} has {len(values)} values, expected 1 to {_MOST_VALUES}"
        )
    return tuple(dict.fromkeys(values))


def _size(text: str) -> int:
    try:
        return parse_size(re.sub(r"(?i)([kmg])\s*$", r"\1iB", text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text.strip()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 999999999")
    return int(text)


def _names(kind: str, known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(filter(None, (n.strip() for n in text.split(",")))))
        for name in names or [text]:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"unknown {kind} {name!r}; known are {', '.join(known)}"
                )
        return names

    return parse
