"""Measure collectives side by side with jax.lax, and check that the results are equal.

Each number of devices gets a process of its own, as a JAX process cannot change it. Progress
goes to stderr, the tables to stdout. Times are medians of jitted calls, each waited for, into
fresh outputs. A ratio is the median over rounds in which the contenders ran one after the
other, in alternating order, so that a busy machine disturbs all of them alike.

The exit status tells of results, not of speed: 1 where one differs from what it was compared
with, or could not be had.
"""

from __future__ import annotations

import argparse
import json

from pccl_jax.cli._bench import arguments
from pccl_jax.cli._bench.report import Progress, document
from pccl_jax.cli._bench.tables import render
from pccl_jax.cli._bench.worker import Report, spawn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pccl-jax bench``."""
    arguments.add_what(parser)
    arguments.add_how(parser)
    parser.add_argument(
        "--json", type=arguments.output_file, metavar="FILE", help="write every figure there"
    )
    parser.add_argument("--markdown", action="store_true", help="print tables for a README")


def run(args: argparse.Namespace) -> int:
    """Measure, print, and return 1 if a result was wrong."""
    plans = [arguments.settings(args, devices) for devices in args.devices]
    progress = Progress(sum(len(plan.cases()) for plan in plans))
    reports: list[Report] = []
    for plan in plans:
        for report in spawn(plan):
            progress.show(report)
            reports.append(report)
    whole = document(plans, reports)
    print(render(whole, markdown=args.markdown))
    if args.json:
        args.json.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    return 1 if whole["failures"] else 0
