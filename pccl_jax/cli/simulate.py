"""Time collectives on a machine model, up to thousands of ranks, without running them.

Each algorithm's schedule is played message by message on nodes, NICs and links as the machine's
file describes them. nccl is the cost model that NCCL itself chooses by, for comparison. --machine
takes a file of your own as well as the names that --list-machines shows.

Progress goes to stderr, tables to stdout. Times are predictions: docs/scaling.md says how far they
are to be trusted.
"""

from __future__ import annotations

import argparse
import json

from pccl_jax.cli._plotting import pyplot
from pccl_jax.cli._simulate import arguments, plot, tables
from pccl_jax.cli._simulate.sweep import Progress, document, plan, sweep
from pccl_jax.simulate import load_machine, machine_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pccl-jax simulate``."""
    arguments.add(parser)


def run(args: argparse.Namespace) -> int:
    """Simulate, print and write; returns 0."""
    if args.list_machines:
        print(tables.machines([load_machine(name) for name in machine_names()]))
        return 0
    machine = load_machine(args.machine)
    settings = plan(args, machine)
    if args.plot:
        pyplot()
    samples = sweep(machine, settings, Progress(settings))
    show = tables.maps if args.map else tables.render
    print(show(machine, samples, settings, markdown=args.markdown), flush=True)
    if args.json:
        whole = document(machine, settings, samples)
        args.json.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    if args.plot:
        plot.draw(args.plot, machine, samples)
    return 0
