"""Every cell of a sweep, simulated, as plain data."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from pccl_jax import schedule
from pccl_jax.errors import ConfigurationError
from pccl_jax.simulate import VENDORS, Machine, estimate, simulate
from pccl_jax.types import Collective

#: Raised by one whenever a reader of the JSON file would have to change.
SCHEMA = "pccl_jax.simulate"
VERSION = 1

#: One algorithm in one cell, e.g. ``{"collective": "all_gather", "algorithm": "ring", "nbytes":
#: 1048576, "nodes": 4, "local": 8, "ranks": 32, "time_us": 310.5}``.
Sample = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What is simulated: collectives by name, sizes in bytes, groups as (nodes, ranks a node)."""

    collectives: tuple[str, ...]
    sizes: tuple[int, ...]
    groups: tuple[tuple[int, int], ...]
    algorithms: tuple[str, ...]
    closed_form: bool

    def names(self, collective: Collective) -> list[str]:
        """The algorithms that have ``collective``."""
        return [n for n in self.algorithms if n in VENDORS or schedule.supports(n, collective)]


def plan(args: argparse.Namespace, machine: Machine) -> Plan:
    """The sweep that the options ask for.

    Raises:
        ConfigurationError: where a number of ranks does not fit the machine.
    """
    per_node = args.ranks_per_node or machine.ranks_per_node
    if per_node > machine.ranks_per_node:
        raise ConfigurationError(
            f"--ranks-per-node {per_node}: a node of {machine.name} has {machine.ranks_per_node}"
        )
    groups = tuple(_group(ranks, per_node, machine) for ranks in args.ranks)
    default = (*schedule.names(), "nccl" if machine.nccl else "mpi")
    algorithms = args.algorithms or default
    return Plan(args.collective, args.bytes, groups, algorithms, args.closed_form)


def _group(ranks: int, per_node: int, machine: Machine) -> tuple[int, int]:
    nodes, rest = divmod(ranks, per_node)
    if nodes == 0:
        return 1, ranks
    if rest:
        raise ConfigurationError(
            f"--ranks {ranks} is not a whole number of nodes of {per_node} ranks; give a multiple, "
            "or other --ranks-per-node"
        )
    if nodes > machine.nodes:
        raise ConfigurationError(
            f"--ranks {ranks} needs {nodes} nodes; {machine.name} has {machine.nodes}"
        )
    return nodes, per_node


class Progress:
    """A line on stderr for each collective and group."""

    def __init__(self, plan: Plan) -> None:
        self._total, self._done = len(plan.collectives) * len(plan.groups), 0
        self._start = time.monotonic()

    def show(self, collective: str, ranks: int) -> None:
        """Prints that this is done."""
        self._done += 1
        passed_s = time.monotonic() - self._start
        count = f"[{self._done:{len(str(self._total))}}/{self._total}]"
        print(f"{count} {passed_s:.1f} s  {collective}, {ranks} ranks", file=sys.stderr, flush=True)


def sweep(machine: Machine, plan: Plan, progress: Progress) -> list[Sample]:
    """Every cell by every algorithm, in order: collective, group, size."""
    samples: list[Sample] = []
    for label in plan.collectives:
        collective = Collective[label.upper()]
        for nodes, local in plan.groups:
            for nbytes in plan.sizes:
                for name in plan.names(collective):
                    at = collective, name, nbytes, nodes, local, machine
                    events = name not in VENDORS and not plan.closed_form
                    seconds = simulate(*at).seconds if events else estimate(*at)
                    samples.append(_sample(label, name, nbytes, nodes, local, seconds))
            progress.show(label, nodes * local)
    return samples


def _sample(
    collective: str, algorithm: str, nbytes: int, nodes: int, local: int, seconds: float
) -> Sample:
    return {
        "collective": collective,
        "algorithm": algorithm,
        "nbytes": nbytes,
        "nodes": nodes,
        "local": local,
        "ranks": nodes * local,
        "time_us": seconds * 1e6,
    }


def document(machine: Machine, plan: Plan, samples: list[Sample]) -> dict[str, Any]:
    """What ``--json`` writes."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "machine": machine.name,
        "sources": machine.sources,
        "settings": asdict(plan),
        "samples": samples,
    }
