"""Lines as a table for a terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby

from pccl_jax.explain.line import Line
from pccl_jax.explain.walk import Runs

#: Columns of words; figures stand to the right.
_WORDS = {"collective", "axis", "operand", "algorithm", "where", "why"}
_HEADER = ["collective", "axis", "ranks", "nodes", "operand", "bytes", "algorithm", "us", "runs",
           "where", "why"]  # fmt: skip


def table(lines: Sequence[Line]) -> str:
    """A table for each program, and the sum of what is known of its time."""
    if not lines:
        return "no collectives"
    parts = [_program(name, list(own)) for name, own in groupby(lines, lambda line: line.program)]
    note = "us: predicted for one run; runs: each time the program does; ?: not known"
    return "\n\n".join([*parts, note])


def _program(name: str, lines: list[Line]) -> str:
    rows = [_HEADER, *map(_row, lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    text = [f"{name}: {_summary(lines)}"]
    for row in rows:
        cells = (
            cell.ljust(width) if title in _WORDS else cell.rjust(width)
            for title, cell, width in zip(_HEADER, row, widths, strict=True)
        )
        text.append(f"  {'  '.join(cells)}".rstrip())
    return "\n".join(text)


def _row(line: Line) -> list[str]:
    op = "" if line.op is None else f" {line.op}"
    return [
        f"{line.collective}{op}",
        line.axis,
        "?" if line.ranks is None else str(line.ranks),
        "?" if line.nodes is None else str(line.nodes),
        f"{line.dtype}[{','.join(map(str, line.shape))}]",
        f"{line.nbytes:,}",
        line.algorithm,
        "?" if line.time_us is None else f"{line.time_us:,.0f}",
        str(Runs(line.runs, line.conditional)),
        "?" if line.source is None else _short(line.source),
        line.reason,
    ]


def _short(source: str) -> str:
    """The place relative to the current folder, where it is in it."""
    here = os.getcwd() + os.sep
    return source.removeprefix(here)


def _summary(lines: list[Line]) -> str:
    known = [line for line in lines if line.time_us is not None and line.runs is not None]
    total_us = sum((line.time_us or 0) * (line.runs or 0) for line in known)
    count = f"{len(lines)} collective{'' if len(lines) == 1 else 's'}"
    bound = "at most " if any(line.conditional for line in known) else ""
    rest = "" if len(known) == len(lines) else f", without {len(lines) - len(known)} not known"
    return f"{count}, {bound}{total_us:,.0f} us predicted{rest}"
