"""The table of nccl-tests, with a group of columns for each contender instead of two.

Size, count, type and operator; for each contender time (median and 95th percentile), algorithm
and bus bandwidth (:meth:`Case.busbw_GBps`) and wrong elements. ``*`` marks the least time. Last
come the fastest contender and the time of the best of ours over that of the best baseline.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

from pccl_jax.cli._bench.grid import Rows, Samples, grouped, text_table, us
from pccl_jax.cli._bench.report import Document
from pccl_jax.dispatch import VENDOR_ALGORITHMS

_GAP = "  |  "
_LEFT = ["collective", "bytes", "count", "dtype", "op"]
_GROUP = ["time us", "p95 us", "algbw GB/s", "busbw GB/s", "wrong"]
#: What tells tables from each other, and the rows of one.
_KIND, _CASE = ("dtype", "ranks", "nodes", "processes"), ("collective", "nbytes")
#: Algorithms of pccl_jax that leave all the work to somebody else.
_THEIRS = tuple(f"pccl:{name}" for name in VENDOR_ALGORITHMS)

Block = list[str]
Cell = dict[str, Any]


def column_tables(whole: Document, width: int | None = None) -> list[str]:
    """A table for each dtype and kind of group, in parts of at most ``width`` characters."""
    columns = width or shutil.get_terminal_size((200, 24)).columns
    return [
        _title(section) + "\n\n" + "\n\n".join(_parts(section, whole["wrong"], columns))
        for section in grouped(whole["samples"], *_KIND).values()
    ]


def _title(section: Samples) -> str:
    dtype, ranks, nodes, processes = (section[0][key] for key in _KIND)
    where = f"{processes} processes" if processes > 1 else "one process"
    return f"{dtype}, {ranks} ranks on {nodes} node(s), {where}"


def _parts(section: Samples, wrong: Samples, width: int) -> list[str]:
    """The blocks of columns beside each other, as many as there is room for."""
    cases = grouped(section, *_CASE).values()
    rows = [_cells(samples, wrong) for samples in cases]
    names = list(dict.fromkeys(name for row in rows for name in row))
    left = _block("", _LEFT, [[str(samples[0][key]) for key in _LEFT] for samples in cases])
    blocks = [_block(name, _GROUP, [_figures(row, name) for row in rows]) for name in names]
    blocks.append(_block("", ["fastest", "ours/baseline"], [_verdict(row) for row in rows]))
    parts: list[list[Block]] = [[left]]
    for block in blocks:
        if len(parts[-1]) > 1 and len(_GAP.join(b[0] for b in [*parts[-1], block])) > width:
            parts.append([left])
        parts[-1].append(block)
    return ["\n".join(_GAP.join(line).rstrip() for line in zip(*p, strict=True)) for p in parts]


def _block(name: str, header: list[str], rows: Rows) -> Block:
    """Lines of equal length: the name of the group, its header, its rows."""
    lines = text_table(header, rows).split("\n")
    width = max(len(name), *map(len, lines))
    return [name.ljust(width), *(line.ljust(width) for line in lines)]


def _cells(row: Samples, wrong: Samples) -> dict[str, Cell]:
    """What is known of each contender in a row, the baseline first."""
    checked = row[0]["checked"]
    cells: dict[str, Cell] = {row[0]["against"]: {"figures": row[0]["baseline"], "wrong": 0}}
    for s in row:
        cells[s["contender"]] = {"figures": s["measured"], "ratios": s["ratios"], "wrong": 0}
    for entry in wrong:
        if all(entry[key] == row[0][key] for key in (*_KIND, *_CASE)):
            timed = cells.get(entry["contender"], {}).get("figures")  # the baseline always is
            cells[entry["contender"]] = {"figures": timed, "wrong": entry["wrong"]}
    return cells if checked else {name: cell | {"wrong": "N/A"} for name, cell in cells.items()}


def _figures(row: dict[str, Cell], name: str) -> list[str]:
    cell = row.get(name)
    if cell is None:
        return ["-"] * len(_GROUP)
    figures = cell["figures"]
    if figures is None:
        return ["-"] * (len(_GROUP) - 1) + [str(cell["wrong"])]
    mark = "*" if name == _fastest(row, list(row)) else " "
    return [
        us(figures) + mark,
        us(figures, "p95_us"),
        f"{figures['algbw_GBps']:.2f}",
        f"{figures['busbw_GBps']:.2f}",
        str(cell["wrong"]),
    ]


def _verdict(row: dict[str, Cell]) -> list[str]:
    ours = _fastest(row, [name for name in row if name.startswith("pccl") and name not in _THEIRS])
    baseline = _fastest(row, [name for name in row if not name.startswith("pccl")])
    fastest = _fastest(row, list(row)) or "-"
    if ours is None or baseline is None:
        return [fastest, "-"]
    return [fastest, f"{row[ours]['ratios'][baseline]:.2f}"]


def _fastest(row: dict[str, Cell], names: Sequence[str]) -> str | None:
    timed = [name for name in names if row[name]["figures"]]
    return min(timed, key=lambda name: float(row[name]["figures"]["median_us"]), default=None)
