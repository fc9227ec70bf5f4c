"""The samples of a sweep as tables, and the machines as one."""

from __future__ import annotations

from collections.abc import Sequence

from pccl_jax.cli._bench.grid import Rows, distinct, markdown_table
from pccl_jax.cli._bench.settings import format_size
from pccl_jax.cli._simulate.sweep import Plan, Sample
from pccl_jax.simulate import VENDORS, Machine


def render(machine: Machine, samples: list[Sample], plan: Plan, *, markdown: bool) -> str:
    """A table for each collective: times in us, the best of ours marked, and what it gains."""
    parts = []
    for (collective,) in distinct(samples, "collective"):
        chosen = [s for s in samples if s["collective"] == collective]
        names = [name for (name,) in distinct(chosen, "algorithm")]
        theirs = [name for name in names if name in VENDORS]
        header = ["bytes", "ranks", *(f"{name} us" for name in names)]
        header += [f"{name} / best" for name in theirs]
        rows = [
            _row(nbytes, ranks, names, theirs, chosen)
            for nbytes, ranks in distinct(chosen, "nbytes", "ranks")
        ]
        table = markdown_table(header, rows) if markdown else _text(header, rows)
        parts.append(f"{collective} on {machine.name}\n\n{table}")
    how = "estimated in closed form" if plan.closed_form else "simulated message by message"
    note = f"{how}; * the best of ours; nccl, mpi and xla are models, always in closed form"
    return "\n\n".join([*parts, note])


def _row(
    nbytes: int, ranks: int, names: list[str], theirs: list[str], samples: list[Sample]
) -> list[str]:
    cell = {
        s["algorithm"]: s["time_us"]
        for s in samples
        if (s["nbytes"], s["ranks"]) == (nbytes, ranks)
    }
    ours = {name: time_us for name, time_us in cell.items() if name not in theirs}
    best = min(ours, key=lambda name: ours[name], default=None)
    row = [format_size(nbytes), str(ranks)]
    row += [f"{_us(cell[name])}{'*' if name == best else ' '}" for name in names]
    row += [f"{_ratio(cell[name], ours[best])}" if best else "" for name in theirs]
    return row


def _us(time_us: float) -> str:
    return f"{time_us:,.0f}" if time_us >= 100 else f"{time_us:.1f}"


def _ratio(theirs: float, ours: float) -> str:
    return f"{theirs / ours:.2f}" if ours else "-"


def _text(header: list[str], rows: Rows) -> str:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    )


def machines(known: Sequence[Machine]) -> str:
    """The machines, one a row, with their figures."""
    header = ["machine", "nodes", "ranks/node", "NICs/node", "NIC GB/s", "network us",
              "node GB/s", "node us"]  # fmt: skip
    rows = [
        [
            m.name,
            str(m.nodes),
            str(m.ranks_per_node),
            str(m.nics_per_node),
            f"{m.network.bandwidth_Bps / 1e9:g}",
            f"{m.network.latency_s * 1e6:g}",
            f"{m.node.bandwidth_Bps / 1e9:g}",
            f"{m.node.latency_s * 1e6:g}",
        ]
        for m in known
    ]
    return "\n".join([_text(header, rows), "", *(f"{m.name}: {m.description}" for m in known)])
