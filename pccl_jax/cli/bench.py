"""Measure collectives side by side with jax.lax, and check that the results are right.

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

from pccl_jax.cli._bench import arguments
from pccl_jax.cli._bench.job import is_root, processes
from pccl_jax.cli._bench.plot import plot
from pccl_jax.cli._bench.report import measured
from pccl_jax.cli._bench.tables import render
from pccl_jax.cli._plotting import plot_file, pyplot


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
    whole = measured(arguments.plans(args, processes()))
    if is_root():
        print(render(whole, markdown=args.markdown), flush=True)
        if args.json:
            args.json.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
        if args.plot:
            plot(whole, args.plot)
    return 1 if whole["failures"] else 0
