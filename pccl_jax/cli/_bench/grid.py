"""Rows of cells as text or Markdown, and the little things every table needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Samples = Sequence[dict[str, Any]]
Rows = list[list[str]]

_LEFT_COLUMNS = ("collective", "size", "contender", "dtype", "op", "fastest", "best", "algorithms")


def us(figures: dict[str, float], key: str = "median_us") -> str:
    time_us = figures[key]
    return f"{time_us:,.0f}" if time_us >= 100 else f"{time_us:.1f}"


def distinct(samples: Samples, *keys: str) -> list[tuple[Any, ...]]:
    """The distinct values of some keys, in order of appearance."""
    return list(grouped(samples, *keys))


def grouped(samples: Samples, *keys: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """The samples by the values of some keys, in order of appearance."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for sample in samples:
        groups.setdefault(tuple(sample[key] for key in keys), []).append(sample)
    return groups


def text_table(header: list[str], rows: Rows) -> str:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in [header, *rows]:
        cells = [
            cell.ljust(width) if name in _LEFT_COLUMNS else cell.rjust(width)
            for name, cell, width in zip(header, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown_table(header: list[str], rows: Rows) -> str:
    rule = ["---", "---"] + ["---:"] * (len(header) - 2)
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *rows])
