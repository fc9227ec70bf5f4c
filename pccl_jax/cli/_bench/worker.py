"""Measures every case of one number of devices; a report for each, as plain data.

A report: ``case``, ``samples`` (timed), ``lowering`` and ``own_time`` (samples of those options),
``wrong`` (elements of contenders with a wrong result, which are not timed; a baseline is) and
``failures`` (the same in words).
"""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import jax
import numpy as np

import pccl_jax
from pccl_jax.cli._bench.cases import Case, Problem
from pccl_jax.cli._bench.check import count_wrong, mismatch
from pccl_jax.cli._bench.contenders import Contender, Launch, find
from pccl_jax.cli._bench.job import Job, join, mesh_of, place_of
from pccl_jax.cli._bench.lowering import lowering_samples
from pccl_jax.cli._bench.measure import measure, paired, summary
from pccl_jax.cli._bench.own_time import own_time_samples
from pccl_jax.cli._bench.settings import Settings, format_size
from pccl_jax.runtime.world import joined_world

Report = dict[str, Any]


def spawn(settings: Settings) -> Iterator[Report]:
    """Runs :func:`work` in a process of its own and yields its reports as they come.

    Where that process fails, having said why on stderr, the last report tells of it.
    """
    command = [sys.executable, "-m", __name__, settings.to_json()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode:
        failure = (
            f"the process that measures {settings.devices} devices ended with exit status "
            f"{process.returncode}; what it printed says why"
        )
        yield _empty(None) | {"failures": [failure]}


def in_step(settings: Settings) -> Iterator[Report]:
    """Runs :func:`work` in this process, as all others do; one that fails ends them all."""
    try:
        yield from work(settings)
    except Exception:  # The others wait for us in a barrier.
        world = joined_world()
        if world is None:
            raise
        traceback.print_exc()
        world.comm.Abort(1)


def work(settings: Settings) -> Iterator[Report]:
    """Measures every case and yields a report for each. Times and failures are the job's."""
    job = join(settings)
    (baseline,) = find(settings.against, ["auto"])
    contenders = [c for name in settings.contenders for c in find(name, settings.algorithms)]
    for case in settings.cases():
        report = _empty(asdict(case))
        able = [c for c in contenders if c.serves(case)] if baseline.serves(case) else []
        problem = Problem(case, mesh_of(case))
        if settings.lowering:
            samples = lowering_samples(problem, [baseline, *able], settings.repeats)
            report["lowering"] = [_place(case) | sample for sample in samples]
        elif settings.own_time:
            _own_time(problem, settings, job, report)
        elif able:
            _run(problem, baseline, able, settings, job, report)
        del problem
        yield report


def _empty(case: dict[str, Any] | None) -> Report:
    lists: Report = {key: [] for key in ("samples", "lowering", "own_time", "wrong", "failures")}
    return {"case": case} | lists


def _own_time(problem: Problem, settings: Settings, job: Job, report: Report) -> None:
    samples, faults = own_time_samples(problem, settings, job)
    report["own_time"] = [_place(problem.case) | sample for sample in samples]
    report["failures"] = [f"pccl: {describe(problem.case)}: {fault}" for fault in faults]


def _run(
    problem: Problem,
    baseline: Contender,
    others: list[Contender],
    settings: Settings,
    job: Job,
    report: Report,
) -> None:
    """Fills in the samples, or the failures, of one case."""
    case = problem.case
    expected = problem.expected() if settings.check else None
    launches, entries = [], []
    for contender in (baseline, *others):
        launch = contender.prepare(problem)
        pccl_jax.choices(clear=True)
        text, wrong = _check(launch, expected)
        faults = job.faults(text)
        if faults:
            where = f"{contender.name}: {describe(case)}"
            report["failures"] += [f"{where}: {fault}" for fault in faults]
            most = int(job.largest([wrong])[0])
            report["wrong"].append(_place(case) | {"contender": contender.name, "wrong": most})
        if faults and contender is not baseline:  # without which there is no ratio
            continue
        launches.append(launch)
        if contender is not baseline:
            entries.append({"contender": contender.name, "algorithm": _algorithm()})
    del expected
    times = measure(
        launches,
        job,
        repeats=settings.repeats,
        min_time_s=settings.min_time_s,
        max_time_s=settings.max_time_s,
    )
    same = _place(case) | {"checked": settings.check, "against": baseline.name}
    same["baseline"] = summary(case, times[0])
    by_name = dict(zip([baseline.name, *(e["contender"] for e in entries)], times, strict=True))
    for entry in entries:
        seconds = by_name[entry["contender"]]
        figures = {"measured": summary(case, seconds)} | paired(times[0], seconds)
        ratios = {name: paired(others, seconds)["ratio"] for name, others in by_name.items()}
        report["samples"].append(same | entry | figures | {"ratios": ratios})


def _check(launch: Launch, expected: list[np.ndarray] | None) -> tuple[str | None, int]:
    """What differs in words, and in how many elements."""
    got = jax.block_until_ready(launch())
    if expected is None:
        return None, 0
    text = mismatch(expected, got)
    return text, count_wrong(expected, got) if text else 0


def _algorithm() -> str | None:
    """What pccl_jax chose since its record was cleared."""
    made = pccl_jax.choices(clear=True)
    return made[-1].algorithm if made else None


def _place(case: Case) -> dict[str, Any]:
    sizes = {"bytes": case.moved_bytes, "count": case.count, "op": case.op}
    return asdict(case) | sizes | place_of(case) | {"processes": jax.process_count()}


def describe(case: Case) -> str:
    """A case in words."""
    return f"{case.collective} of {format_size(case.nbytes)} {case.dtype} on {case.ranks} devices"


if __name__ == "__main__":
    for _report in work(Settings.from_json(sys.argv[1])):
        print(json.dumps(_report), flush=True)
