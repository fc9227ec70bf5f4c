"""Where the samples come from, unless they are measured now: from files, or simulated."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pccl_jax.dispatch.machine import fingerprint
from pccl_jax.dispatch.samples import Point, Sample, read_bench
from pccl_jax.errors import ConfigurationError
from pccl_jax.simulate import Timing, groups, load_machine, sweep
from pccl_jax.types import Collective


@dataclass(frozen=True)
class Source:
    """Samples, and the machine that they are of.

    Attributes:
        samples: see :class:`~pccl_jax.dispatch.samples.Sample`.
        machine: its fingerprint, or the name of a simulated one.
        simulated: whether the times were.
    """

    samples: list[Sample]
    machine: dict[str, Any]
    simulated: bool = False


def from_files(paths: Sequence[Path]) -> Source:
    """The samples of files that ``pccl-jax bench --json`` or an earlier tuning has written.

    Raises:
        ConfigurationError: where one cannot be read, is something else, or of another machine
            than the first.
    """
    samples: list[Sample] = []
    machines: list[dict[str, Any]] = []
    for path in paths:
        found, machine = read_bench(path)
        samples += found
        machines.append({key: machine.get(key) for key in fingerprint()})
        if machines[-1] != machines[0]:
            raise ConfigurationError(
                f"{path} was measured on another machine than {paths[0]}: {machines[-1]}, not "
                f"{machines[0]}; a model is of one machine"
            )
    return Source(samples, machines[0])


def simulated(name: str) -> Source:
    """The samples of a sweep on a machine model; progress goes to stderr.

    What the model of NCCL takes is learned as ``xla``, whose collectives on GPU are NCCL's.

    Raises:
        ConfigurationError: where there is no such machine, or its file is wrong.
    """
    machine = load_machine(name)
    samples = []
    for collective in Collective:
        for shape in groups(machine):
            print(
                f"Simulating {collective.label} on {shape[0]} nodes of {shape[1]}", file=sys.stderr
            )
            samples += [_sample(timing) for timing in sweep(machine, collective, [shape])]
    return Source(samples, {"name": machine.name}, simulated=True)


def _sample(timing: Timing) -> Sample:
    point = Point(timing.collective.label, timing.nbytes, timing.nodes * timing.local, timing.nodes)
    name = "xla" if timing.algorithm == "nccl" else timing.algorithm
    return Sample(point, name, timing.seconds, timing.seconds, timing.seconds)
