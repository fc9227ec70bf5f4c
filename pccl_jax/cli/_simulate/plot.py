"""Times over ranks, or over bytes, on logarithmic axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pccl_jax.cli._bench.grid import distinct
from pccl_jax.cli._bench.settings import format_size
from pccl_jax.cli._plotting import pyplot
from pccl_jax.cli._simulate.sweep import Sample
from pccl_jax.simulate import VENDORS, Machine

#: Panels in a row; of more sizes, some evenly spread ones are shown.
_COLUMNS = 4


def draw(path: Path, machine: Machine, samples: list[Sample]) -> None:
    """Writes a figure with a row for each collective; the ending of ``path`` says the format.

    Raises:
        ConfigurationError: where matplotlib is not installed.
    """
    plt = pyplot()
    over, panel = ("ranks", "nbytes") if _several(samples, "ranks") else ("nbytes", "ranks")
    collectives = [name for (name,) in distinct(samples, "collective")]
    panels = _spread([value for (value,) in distinct(samples, panel)])
    figure = plt.figure(
        figsize=(3.6 * len(panels), 3 * len(collectives) + 0.6), layout="constrained"
    )
    grid = figure.subplots(len(collectives), len(panels), squeeze=False, sharex=True)
    for row, collective in enumerate(collectives):
        for column, value in enumerate(panels):
            cell = [s for s in samples if (s["collective"], s[panel]) == (collective, value)]
            what = format_size(value) if panel == "nbytes" else f"{value} ranks"
            _panel(grid[row][column], cell, over, f"{collective}, {what}")
    figure.legend(*grid[-1][0].get_legend_handles_labels(), loc="outside upper center", ncols=8)
    figure.suptitle(f"simulated on {machine.name}", fontsize="small", x=0.01, ha="left")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _several(samples: list[Sample], key: str) -> bool:
    return len({sample[key] for sample in samples}) > 1


def _spread(values: list[int]) -> list[int]:
    if len(values) <= _COLUMNS:
        return values
    last = len(values) - 1
    return [values[round(i * last / (_COLUMNS - 1))] for i in range(_COLUMNS)]


def _panel(axes: Any, samples: list[Sample], over: str, title: str) -> None:
    for (name,) in distinct(samples, "algorithm"):
        points = sorted((s[over], s["time_us"] / 1e3) for s in samples if s["algorithm"] == name)
        style = "k--" if name in VENDORS else "o-"
        axes.plot(*zip(*points, strict=True), style, label=name, markersize=3, linewidth=1.2)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_title(title, fontsize="small")
    axes.set_xlabel("ranks" if over == "ranks" else "bytes")
    axes.set_ylabel("ms")
    axes.grid(True, which="major", alpha=0.3)
