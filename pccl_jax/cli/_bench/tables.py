"""The document as tables: plain text for a terminal, Markdown for a README."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pccl_jax.cli._bench.report import Document
from pccl_jax.cli._bench.settings import format_size

Samples = Sequence[dict[str, Any]]
Rows = list[list[str]]

_LEFT_COLUMNS = ("collective", "size", "contender", "dtype")


def render(whole: Document, *, markdown: bool) -> str:
    """Every table, and under it the machine they hold for."""
    tables = _compact if markdown else _full
    parts = tables(whole["samples"])
    if whole["lowering"]:
        parts.append(_lowering(whole["lowering"], markdown=markdown))
    if whole["summary"]:
        parts.append("\n".join(map(_verdict, whole["summary"])))
    facts = whole["machine"]
    parts.append(
        f"{facts['cpu']}, {facts['cores']} cores, load {facts['load_average'][0]}; jax "
        f"{facts['jax']}, Python {facts['python']}, pccl_jax {facts['pccl_jax']}, {facts['date']}"
    )
    parts += [f"FAILED {failure}" for failure in whole["failures"]]
    return "\n\n".join(parts)


def _full(samples: Samples) -> list[str]:
    """A table for each dtype and number of devices: times, ratio and bandwidth."""
    parts = []
    for dtype, ranks in _distinct(samples, "dtype", "ranks"):
        chosen = [s for s in samples if (s["dtype"], s["ranks"]) == (dtype, ranks)]
        names = [name for (name,) in _distinct(chosen, "contender")]
        several = len(names) > 1
        against = chosen[0]["against"]
        header = ["collective", "size", *(["contender"] if several else []), f"{against} us",
                  "us" if several else f"{names[0]} us", "ratio", "busbw GB/s"]  # fmt: skip
        rows = [
            [
                s["collective"],
                format_size(s["nbytes"]),
                *([s["contender"]] if several else []),
                _us(s["baseline"]),
                _us(s["measured"]),
                f"{s['ratio']:.2f}",
                f"{s['measured']['busbw_GBps']:.2f}",
            ]
            for s in chosen
        ]
        parts.append(f"{dtype}, {ranks} devices\n{_text(header, rows)}")
    return parts


def _compact(samples: Samples) -> list[str]:
    """A table for each dtype and contender, with three columns for each number of devices."""
    parts = []
    for dtype, name in _distinct(samples, "dtype", "contender"):
        chosen = [s for s in samples if (s["dtype"], s["contender"]) == (dtype, name)]
        devices = [ranks for (ranks,) in _distinct(chosen, "ranks")]
        cells = {(s["collective"], s["nbytes"], s["ranks"]): s for s in chosen}
        header = [f"{dtype}", "size"]
        for ranks in devices:
            header += [f"{ranks} devices: {chosen[0]['against']} us", f"{name} us", "ratio"]
        rows = [
            [collective, format_size(nbytes)]
            + [text for ranks in devices for text in _cell(cells.get((collective, nbytes, ranks)))]
            for collective, nbytes in _distinct(chosen, "collective", "nbytes")
        ]
        parts.append(_markdown(header, rows))
    return parts


def _cell(sample: dict[str, Any] | None) -> list[str]:
    if sample is None:
        return ["", "", ""]
    return [_us(sample["baseline"]), _us(sample["measured"]), f"**{sample['ratio']:.2f}**"]


def _lowering(samples: Samples, *, markdown: bool) -> str:
    header = ["collective", "dtype", "devices", "contender", f"{samples[0]['against']} ms", "ms",
              "extra ms", "first ms"]  # fmt: skip
    rows = [
        [s["collective"], s["dtype"], str(s["ranks"]), s["contender"]]
        + [f"{s[key]:.2f}" for key in ("baseline_ms", "measured_ms", "extra_ms", "first_ms")]
        for s in samples
    ]
    table = _markdown(header, rows) if markdown else _text(header, rows)
    return f"Time to trace and lower, median of {samples[0]['functions']} functions\n\n{table}"


def _verdict(summary: dict[str, Any]) -> str:
    worst = summary["worst"]
    return (
        f"{summary['contender']}, {summary['dtype']}, {summary['ranks']} devices: geometric mean "
        f"of {summary['cells']} ratios {summary['geometric_mean']:.2f}, worst {worst['ratio']:.2f} "
        f"({worst['collective']} of {format_size(worst['nbytes'])})"
    )


def _us(figures: dict[str, float]) -> str:
    median = figures["median_us"]
    return f"{median:,.0f}" if median >= 100 else f"{median:.1f}"


def _distinct(samples: Samples, *keys: str) -> list[tuple[Any, ...]]:
    """The distinct values of some keys, in order of appearance."""
    return list(dict.fromkeys(tuple(sample[key] for key in keys) for sample in samples))


def _text(header: list[str], rows: Rows) -> str:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in [header, *rows]:
        cells = [
            cell.ljust(width) if name in _LEFT_COLUMNS else cell.rjust(width)
            for name, cell, width in zip(header, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _markdown(header: list[str], rows: Rows) -> str:
    rule = ["---", "---"] + ["---:"] * (len(header) - 2)
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *rows])
