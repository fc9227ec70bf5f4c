"""Tables across processes: the time of every contender in a column of its own, then our ratios."""

from __future__ import annotations

from typing import Any

from pccl_jax.cli._bench.grid import Samples, distinct, grouped, markdown_table, text_table, us
from pccl_jax.cli._bench.settings import format_size

_PEERS = ("mpi", "mpi4jax")
_PAIR = "all_gather, reduce_scatter (mean)"


def side_by_side(samples: Samples) -> list[str]:
    """A Markdown table for each dtype and number of ranks."""
    return [_table(section) for section in grouped(samples, "dtype", "ranks").values()]


def _table(samples: Samples) -> str:
    against, dtype, ranks, processes = (
        samples[0][key] for key in ("against", "dtype", "ranks", "processes")
    )
    names = [name for (name,) in distinct(samples, "contender")]
    ours = [name for name in names if name.startswith("pccl")]
    peers = [against, *(name for name in _PEERS if name in names)]
    header = ["collective", "size", f"{against} us", *(f"{name} us" for name in names)]
    header += [f"{name}/{peer}" for name in ours for peer in peers]
    rows = []
    for (collective, nbytes), row in grouped(samples, "collective", "nbytes").items():
        cells = {s["contender"]: s for s in row}
        stall = "*" if row[0]["stalled"] else ""
        rows.append(
            [collective, format_size(nbytes), us(row[0]["baseline"]) + stall]
            + [us(cells[name]["measured"]) if name in cells else "-" for name in names]
            + [_ratio(cells.get(name), peer) for name in ours for peer in peers]
        )
    table = markdown_table(header, rows)
    title = f"{dtype}, {ranks} ranks in {processes} processes, {samples[0]['nodes']} node(s)"
    note = f"* {against} took longer than for a larger message: not in the means"
    return "\n\n".join([title, table, *([note] if any(s["stalled"] for s in samples) else [])])


def _ratio(sample: dict[str, Any] | None, peer: str) -> str:
    return f"{sample['ratios'][peer]:.2f}" if sample and peer in sample["ratios"] else "-"


def own_time(samples: Samples, *, markdown: bool) -> str:
    """The table of ``--own-time``."""
    header = ["collective", "size", "dtype", "ranks", "mpi us", "pccl us", "pccl/mpi", "launch us"]
    rows = [
        [
            _PAIR if s["collective"] == "all_gather" else s["collective"],
            format_size(s["nbytes"]),
            s["dtype"],
            str(s["ranks"]),
            f"{s['mpi_us']:.1f}",
            f"{s['own_us']:.1f}",
            f"{s['ratio']:.2f}",
            f"{s['launch_us']:.0f}",
        ]
        for s in samples
    ]
    table = markdown_table(header, rows) if markdown else text_table(header, rows)
    return f"Time of a call in a loop, without dispatch; of a launch with one call\n\n{table}"


def peer_verdict(summary: dict[str, Any]) -> str:
    """One contender of ours in words."""
    parts = []
    if summary["speed_up"] is not None:
        parts.append(
            f"{summary['speed_up']:.2f}x as fast as gloo in the geometric mean of "
            f"{summary['cells']} cells, at least {_cell(summary['least_speed_up'], 'x')}"
        )
    if summary["least_large_speed_up"]:
        parts.append(f"from 4 MiB up at least {_cell(summary['least_large_speed_up'], 'x')}")
    for peer, where in (("mpi", "from 1 MiB up"), ("mpi4jax", "everywhere")):
        if summary[peer]:
            mean = summary[peer]["mean"]
            parts.append(f"{where} {mean:.2f} of {peer}'s time in the geometric mean, "
                         f"at most {_cell(summary[peer])}")  # fmt: skip
    who = f"{summary['contender']}, {summary['dtype']}, {summary['ranks']} ranks: "
    return who + "; ".join(parts)


def _cell(cell: dict[str, Any], unit: str = "") -> str:
    size = format_size(cell["nbytes"])
    return f"{cell['value']:.2f}{unit} ({cell['collective']} of {size})"
