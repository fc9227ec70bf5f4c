"""Time and bus bandwidth over size, on logarithmic axes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pccl_jax.cli._bench.grid import grouped
from pccl_jax.cli._bench.report import Document
from pccl_jax.cli._plotting import pyplot

_QUANTITIES = {"median_us": "time in us (median to p95)", "busbw_GBps": "bus bandwidth in GB/s"}
_KIND = ("collective", "dtype", "ranks", "nodes", "processes")


def plot(whole: Document, path: Path) -> None:
    """A row of two pictures for each collective, type and kind of group."""
    kinds = grouped(whole["samples"], *_KIND)
    if not kinds:
        print(f"{path} is not drawn: no contender was timed", file=sys.stderr)
        return
    plt = pyplot()
    figure, rows = plt.subplots(
        len(kinds), 2, figsize=(12, 4 * len(kinds)), squeeze=False, layout="constrained"
    )
    for (kind, samples), axes in zip(kinds.items(), rows, strict=True):
        _pair(axes, _lines(samples))
        collective, dtype, ranks, nodes, processes = kind
        axes[0].set_title(
            f"{collective} of {dtype}, {ranks} ranks, {nodes} node(s), {processes} process(es)",
            loc="left",
        )
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _lines(samples: list[dict[str, Any]]) -> dict[str, list[tuple[int, dict[str, float]]]]:
    """For each contender its figures by size in ascending order; the baseline first."""
    lines: dict[str, dict[int, dict[str, float]]] = {}
    for s in samples:
        lines.setdefault(s["against"], {})[s["bytes"]] = s["baseline"]
    for s in samples:
        lines.setdefault(s["contender"], {})[s["bytes"]] = s["measured"]
    return {name: sorted(line.items()) for name, line in lines.items()}


def _pair(axes: Any, lines: dict[str, list[tuple[int, dict[str, float]]]]) -> None:
    for ax, (key, label) in zip(axes, _QUANTITIES.items(), strict=True):
        for name, line in lines.items():
            sizes, values = [size for size, _ in line], [figures[key] for _, figures in line]
            (drawn,) = ax.plot(sizes, values, marker="o", markersize=3, label=name)
            if key == "median_us":
                tops = [figures["p95_us"] for _, figures in line]
                ax.fill_between(sizes, values, tops, alpha=0.1, color=drawn.get_color())
        ax.set(yscale="log", xlabel="bytes of the larger array", ylabel=label)
        ax.set_xscale("log", base=2)
        ax.grid(alpha=0.3)
    axes[0].legend(fontsize="small")
