"""The whole measurement as one document, and the progress on the way to it."""

from __future__ import annotations

import datetime
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from statistics import geometric_mean
from typing import Any

import pccl_jax
from pccl_jax.cli._bench.cases import Case
from pccl_jax.cli._bench.grid import grouped
from pccl_jax.cli._bench.job import is_root
from pccl_jax.cli._bench.peers import mark_stalls, peer_summaries
from pccl_jax.cli._bench.settings import Settings
from pccl_jax.cli._bench.worker import Report, describe, in_step, spawn
from pccl_jax.cli._libraries import package_version
from pccl_jax.dispatch.machine import fingerprint
from pccl_jax.dispatch.samples import BENCH_SCHEMA, BENCH_VERSION

Document = dict[str, Any]


class Progress:
    """A line on stderr for each case that is done."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._start = total, 0, time.monotonic()

    def show(self, report: Report) -> None:
        """Prints the figures of one case, or what failed."""
        for failure in report["failures"]:
            print(f"FAILED {failure}", file=sys.stderr, flush=True)
        if report["case"] is None:
            return
        self._done += 1
        minutes, seconds = divmod(int(time.monotonic() - self._start), 60)
        width = len(str(self._total))
        count = f"[{self._done:{width}}/{self._total}] {minutes}:{seconds:02}"
        figures = ", ".join(_figures(report)) or "nothing to compare"
        print(
            f"{count}  {describe(Case(**report['case']))}: {figures}", file=sys.stderr, flush=True
        )


def _figures(report: Report) -> list[str]:
    if report["lowering"]:
        return [f"{s['contender']} {s['extra_ms']:+.2f} ms" for s in report["lowering"]]
    if report["own_time"]:
        return [f"mpi {s['mpi_us']:.1f} us, pccl {s['own_us']:.1f} us ({s['ratio']:.2f})"
                for s in report["own_time"]]  # fmt: skip
    samples = report["samples"]
    if not samples:
        return []
    baseline = f"{samples[0]['against']} {samples[0]['baseline']['median_us']:.0f} us"
    return [baseline] + [
        f"{s['contender']} {s['measured']['median_us']:.0f} us ({s['ratio']:.2f})" for s in samples
    ]


def measured(plans: Sequence[Settings]) -> Document:
    """Carries out the plans, here or in processes of their own; progress goes to stderr."""
    progress = Progress(sum(len(plan.cases()) for plan in plans))
    reports: list[Report] = []
    for plan in plans:
        for report in in_step(plan) if plan.processes > 1 else spawn(plan):
            reports.append(report)
            if is_root():
                progress.show(report)
    return document(plans, reports)


def document(plans: Sequence[Settings], reports: Sequence[Report]) -> Document:
    """Everything that was measured: what ``--json`` writes and the tables show."""
    samples = mark_stalls([sample for report in reports for sample in report["samples"]])
    return {
        "schema": BENCH_SCHEMA,
        "version": BENCH_VERSION,
        "machine": machine(),
        "settings": [asdict(plan) for plan in plans],
        "samples": samples,
        "wrong": [entry for report in reports for entry in report["wrong"]],
        "lowering": [sample for report in reports for sample in report["lowering"]],
        "own_time": [sample for report in reports for sample in report["own_time"]],
        "summary": summaries(samples),
        "peers": peer_summaries(samples),
        "failures": [failure for report in reports for failure in report["failures"]],
    }


def summaries(samples: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each contender, dtype and number of ranks the geometric mean and the worst ratio.

    Cells in which the baseline stalls are left out. For our own choice (``pccl``) beside single
    algorithms there is ``to_best``: the geometric mean of its time over that of the fastest
    algorithm of each cell.
    """
    fastest = _fastest(samples)
    steady = [sample for sample in samples if not sample.get("stalled")]
    groups = grouped(steady, "contender", "dtype", "ranks")
    return [
        {
            "contender": contender,
            "dtype": dtype,
            "ranks": ranks,
            "cells": len(group),
            "geometric_mean": round(geometric_mean([s["ratio"] for s in group]), 4),
            "worst": {
                key: max(group, key=lambda sample: float(sample["ratio"]))[key]
                for key in ("ratio", "collective", "nbytes")
            },
        }
        | _to_best(group, fastest)
        for (contender, dtype, ranks), group in groups.items()
    ]


def _fastest(samples: Sequence[dict[str, Any]]) -> dict[tuple[Any, ...], str]:
    """The fastest single algorithm of ours in each cell."""
    best: dict[tuple[Any, ...], dict[str, Any]] = {}
    for sample in samples:
        known = best.get(_cell(sample))
        if sample["contender"].startswith("pccl:") and (
            known is None or sample["measured"]["median_us"] < known["measured"]["median_us"]
        ):
            best[_cell(sample)] = sample
    return {cell: str(sample["contender"]) for cell, sample in best.items()}


def _to_best(
    group: Sequence[dict[str, Any]], fastest: dict[tuple[Any, ...], str]
) -> dict[str, float]:
    if group[0]["contender"] != "pccl" or any(_cell(s) not in fastest for s in group):
        return {}
    ratios = [float(s["ratios"][fastest[_cell(s)]]) for s in group]
    return {"to_best": round(geometric_mean(ratios), 4)}


def _cell(sample: dict[str, Any]) -> tuple[Any, ...]:
    keys = ("collective", "dtype", "nbytes", "ranks", "nodes", "processes")
    return tuple(sample.get(key) for key in keys)


def machine() -> dict[str, Any]:
    """What a reader of the figures has to know of the machine."""
    return {
        **fingerprint(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "pccl_jax": pccl_jax.__version__,
        **{name: package_version(name) for name in ("jax", "jaxlib", "numpy")},
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
