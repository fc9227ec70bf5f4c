"""The document as tables: plain text for a terminal, Markdown for a README."""

from __future__ import annotations

from typing import Any

from pccl_jax.cli._bench.columns import column_tables
from pccl_jax.cli._bench.grid import Samples, distinct, grouped, markdown_table, text_table, us
from pccl_jax.cli._bench.report import Document
from pccl_jax.cli._bench.settings import format_size
from pccl_jax.cli._bench.side_by_side import own_time, peer_verdict, side_by_side


def render(whole: Document, *, markdown: bool) -> str:
    """Every table, and under it the machine they hold for."""
    if not markdown:
        parts = column_tables(whole)
    elif any(sample["processes"] > 1 for sample in whole["samples"]):
        parts = side_by_side(whole["samples"])
    else:
        parts = _compact(whole["samples"])
    if whole["lowering"]:
        parts.append(_lowering(whole["lowering"], markdown=markdown))
    if whole["own_time"]:
        parts.append(own_time(whole["own_time"], markdown=markdown))
    if whole["peers"]:
        parts.append("\n".join(map(peer_verdict, whole["peers"])))
    if whole["summary"]:
        parts.append("\n".join(map(_verdict, whole["summary"])))
    facts = whole["machine"]
    parts.append(
        f"{facts['cpu']}, {facts['cores']} cores, load {facts['load_average'][0]}; jax "
        f"{facts['jax']}, Python {facts['python']}, pccl_jax {facts['pccl_jax']}, {facts['date']}"
    )
    parts += [f"FAILED {failure}" for failure in whole["failures"]]
    return "\n\n".join(parts)


def _compact(samples: Samples) -> list[str]:
    """A table for each dtype and contender, with three columns for each number of devices."""
    parts = []
    for (dtype, name), chosen in grouped(samples, "dtype", "contender").items():
        devices = [ranks for (ranks,) in distinct(chosen, "ranks")]
        cells = {(s["collective"], s["nbytes"], s["ranks"]): s for s in chosen}
        header = [dtype, "size"]
        for ranks in devices:
            header += [f"{ranks} devices: {chosen[0]['against']} us", f"{name} us", "ratio"]
        rows = [
            [collective, format_size(nbytes)]
            + [text for ranks in devices for text in _cell(cells.get((collective, nbytes, ranks)))]
            for collective, nbytes in distinct(chosen, "collective", "nbytes")
        ]
        parts.append(markdown_table(header, rows))
    return parts


def _cell(sample: dict[str, Any] | None) -> list[str]:
    if sample is None:
        return ["", "", ""]
    return [us(sample["baseline"]), us(sample["measured"]), f"**{sample['ratio']:.2f}**"]


def _lowering(samples: Samples, *, markdown: bool) -> str:
    header = ["collective", "dtype", "devices", "contender", f"{samples[0]['against']} ms", "ms",
              "extra ms", "first ms"]  # fmt: skip
    rows = [
        [s["collective"], s["dtype"], str(s["ranks"]), s["contender"]]
        + [f"{s[key]:.2f}" for key in ("baseline_ms", "measured_ms", "extra_ms", "first_ms")]
        for s in samples
    ]
    table = markdown_table(header, rows) if markdown else text_table(header, rows)
    return f"Time to trace and lower, median of {samples[0]['functions']} functions\n\n{table}"


def _verdict(summary: dict[str, Any]) -> str:
    worst = summary["worst"]
    best = ""
    if "to_best" in summary:
        best = f"; {summary['to_best']:.2f} of the time of the fastest algorithm of each cell"
    return (
        f"{summary['contender']}, {summary['dtype']}, {summary['ranks']} devices: geometric mean "
        f"of {summary['cells']} ratios {summary['geometric_mean']:.2f}, worst {worst['ratio']:.2f} "
        f"({worst['collective']} of {format_size(worst['nbytes'])})"
        f"{best}"
    )
