"""The samples of a sweep as tables, and the machines as one."""

from __future__ import annotations

from collections.abc import Sequence

from pccl_jax.cli._bench.grid import Rows, distinct, markdown_table, text_table, us
from pccl_jax.cli._bench.settings import format_size
from pccl_jax.cli._simulate.sweep import Plan, Sample
from pccl_jax.simulate import VENDORS, Machine


def render(machine: Machine, samples: list[Sample], plan: Plan, *, markdown: bool) -> str:
    """A table for each collective: times in us, the best of ours marked, and what it gains."""
    parts = []
    for (collective,) in distinct(samples, "collective"):
        chosen = [s for s in samples if s["collective"] == collective]
        names = [name for (name,) in distinct(chosen, "algorithm")]
        header = ["bytes", "ranks", *(f"{name} us" for name in names)]
        header += [f"{name} / best" for name in names if name in VENDORS]
        rows = [
            [format_size(nbytes), str(ranks), *_row(_cell(chosen, nbytes, ranks), names)]
            for nbytes, ranks in distinct(chosen, "nbytes", "ranks")
        ]
        parts.append(_titled(f"{collective} on {machine.name}", header, rows, markdown=markdown))
    note = "* the best of ours; nccl, mpi and xla are models, always in closed form"
    return "\n\n".join([*parts, f"{_how(plan)}; {note}"])


def maps(machine: Machine, samples: list[Sample], plan: Plan, *, markdown: bool) -> str:
    """For each collective, ranks by bytes: the best of ours, and the best of the rest over it."""
    parts = []
    for (collective,) in distinct(samples, "collective"):
        chosen = [s for s in samples if s["collective"] == collective]
        sizes = [nbytes for (nbytes,) in distinct(chosen, "nbytes")]
        rows = [
            [str(ranks), *(_gain(_cell(chosen, nbytes, ranks)) for nbytes in sizes)]
            for (ranks,) in distinct(chosen, "ranks")
        ]
        header = ["ranks", *map(format_size, sizes)]
        parts.append(_titled(f"{collective} on {machine.name}", header, rows, markdown=markdown))
    note = "the best of ours, and how many times as long the best of nccl, mpi and xla takes"
    return "\n\n".join([*parts, f"{_how(plan)}; {note}"])


#: Microseconds by algorithm.
_Cell = dict[str, float]


def _cell(samples: list[Sample], nbytes: int, ranks: int) -> _Cell:
    at = nbytes, ranks
    return {s["algorithm"]: s["time_us"] for s in samples if (s["nbytes"], s["ranks"]) == at}


def _split(cell: _Cell) -> tuple[_Cell, _Cell]:
    """What is ours, and what is not."""
    ours = {name: time_us for name, time_us in cell.items() if name not in VENDORS}
    return ours, {name: time_us for name, time_us in cell.items() if name in VENDORS}


def _row(cell: _Cell, names: list[str]) -> list[str]:
    ours, theirs = _split(cell)
    best = min(ours, key=lambda name: ours[name], default=None)
    times = [f"{us(cell, name)}{'*' if name == best else ' '}" for name in names]
    return times + [_ratio(time_us, ours[best]) if best else "" for time_us in theirs.values()]


def _gain(cell: _Cell) -> str:
    ours, theirs = _split(cell)
    if not ours:
        return ""
    best = min(ours, key=lambda name: ours[name])
    return f"{best} {_ratio(min(theirs.values()), ours[best])}" if theirs else best


def _how(plan: Plan) -> str:
    return "estimated in closed form" if plan.closed_form else "simulated message by message"


def _titled(title: str, header: list[str], rows: Rows, *, markdown: bool) -> str:
    return f"{title}\n\n{markdown_table(header, rows) if markdown else text_table(header, rows)}"


def _ratio(theirs: float, ours: float) -> str:
    return f"{theirs / ours:.2f}" if ours else "-"


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
    return "\n".join([text_table(header, rows), "", *(f"{m.name}: {m.description}" for m in known)])
