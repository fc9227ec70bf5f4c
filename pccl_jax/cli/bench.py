"""Measure collectives side by side with jax.lax, and check that the results are equal.

Each number of devices gets a process of its own, as a JAX process cannot change it. Under mpiexec
or srun all processes measure together, in step, and a time is that of the slowest. Progress goes
to stderr, the tables to stdout: a group of columns for each contender, * at the least time. Times
are those of jitted calls, each waited for, into fresh outputs. A ratio is the median over rounds in
which the contenders ran one after the other, in alternating order, so that a busy machine disturbs
all of them alike.

The exit status tells of results, not of speed: 1 where one differs from what it was compared
with, or could not be had.
"""

from __future__ import annotations

import argparse
import json
import os

from pccl_jax.cli._bench import arguments
from pccl_jax.cli._bench.plot import plot
from pccl_jax.cli._bench.report import Progress, document
from pccl_jax.cli._bench.tables import render
from pccl_jax.cli._bench.worker import Report, in_step, spawn
from pccl_jax.cli._plotting import plot_file, pyplot
from pccl_jax.runtime.launcher import find_launch
from pccl_jax.runtime.world import joined_world


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pccl-jax bench``."""
    arguments.add_what(parser)
    arguments.add_how(parser)
    parser.add_argument(
        "--json", type=arguments.output_file, metavar="FILE", help="write every figure there"
    )
    parser.add_argument("--markdown", action="store_true", help="print tables for a README")
    parser.add_argument(
        "--plot",
        type=plot_file,
        metavar="FILE",
        help="draw time and bus bandwidth over size there (png, pdf or svg); needs matplotlib",
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print, and return 1 if a result was wrong."""
    if args.plot:
        pyplot()  # whatever is missing is missed before hours of measuring
    launch = find_launch(os.environ)
    processes = launch.processes if launch else 1
    plans = arguments.plans(args, processes)
    progress = Progress(sum(len(plan.cases()) for plan in plans))
    reports: list[Report] = []
    for plan in plans:
        for report in in_step(plan) if processes > 1 else spawn(plan):
            reports.append(report)
            if _is_root():
                progress.show(report)
    whole = document(plans, reports)
    if _is_root():
        print(render(whole, markdown=args.markdown), flush=True)
        if args.json:
            args.json.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
        if args.plot:
            plot(whole, args.plot)
    return 1 if whole["failures"] else 0


def _is_root() -> bool:
    """Whether this process speaks for all."""
    world = joined_world()
    return world is None or world.process == 0
