"""The picture of a model: what it chooses by size and number of ranks, and what was measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pccl_jax.cli._plotting import pyplot
from pccl_jax.dispatch.model import Svm
from pccl_jax.dispatch.predict import predictor
from pccl_jax.dispatch.samples import Point, Table

_RESOLUTION = 200


def plot(svms: Mapping[str, Svm], table: Table, path: Path) -> None:
    """A row for each collective, a column for each kind of group (nodes, ranks in a process)."""
    plt = pyplot()
    kinds = sorted({(p.nodes, p.ranks_per_process) for p in table})
    names = sorted({name for at in table.values() for name in at})
    colours = {name: plt.get_cmap("tab10")(i % 10) for i, name in enumerate(names)}
    size = (4.5 * len(kinds), 3.5 * len(svms))
    figure, rows = plt.subplots(
        len(svms), len(kinds), figsize=size, squeeze=False, layout="constrained"
    )
    for row, (collective, svm) in zip(rows, svms.items(), strict=True):
        for axes, (nodes, in_process) in zip(row, kinds, strict=True):
            at = {
                p: s
                for p, s in table.items()
                if (p.collective, p.nodes, p.ranks_per_process) == (collective, nodes, in_process)
            }
            axes.set_title(f"{collective}, {nodes} node(s), {in_process} rank(s) a process")
            axes.set(xlabel="bytes of the larger array", ylabel="ranks")
            if at:
                _panel(axes, svm, at, colours)
    handles = [plt.Line2D([], [], marker="s", ls="", color=c, label=n) for n, c in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(names))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _panel(axes: Any, svm: Svm, at: Table, colours: Mapping[str, Any]) -> None:
    """Areas are choices, points the fastest that was measured."""
    points = list(at)
    measured = {name for samples in at.values() for name in samples}
    ranks = sorted({p.ranks for p in points})
    low, high = (f(np.log2([p.nbytes for p in points])) for f in (min, max))
    sizes = np.exp2(np.linspace(low, high, _RESOLUTION))
    for number, n in enumerate(ranks):
        chosen = _chosen(svm, points[0], sizes, n, measured)
        for start, stop in _runs(chosen):
            axes.barh(number, sizes[stop] - sizes[start], left=sizes[start], height=0.9,
                      color=colours.get(chosen[start], "grey"), alpha=0.45)  # fmt: skip
    for point, samples in at.items():
        best = min(samples.values(), key=lambda sample: sample.median_s)
        axes.plot(point.nbytes, ranks.index(point.ranks), "o", color=colours[best.algorithm],
                  markeredgecolor="black", markersize=5)  # fmt: skip
    axes.set_yticks(range(len(ranks)), [str(n) for n in ranks])
    axes.set_xscale("log", base=2)


def _chosen(svm: Svm, like: Point, sizes: Any, ranks: int, measured: set[str]) -> list[str]:
    points = [dataclasses.replace(like, nbytes=int(size), ranks=ranks) for size in sizes]
    able = np.tile([name in measured for name in svm.classes], (len(points), 1))
    winners = predictor(svm).vote([svm.values(p) for p in points], able)
    return [svm.classes[i] for i in winners]


def _runs(chosen: list[str]) -> list[tuple[int, int]]:
    """First and last position of each stretch of equal names; stretches meet."""
    starts = [0, *(i for i in range(1, len(chosen)) if chosen[i] != chosen[i - 1])]
    return list(zip(starts, [*starts[1:], len(chosen) - 1], strict=True))
