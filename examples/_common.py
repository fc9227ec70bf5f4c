"""What the examples share: options, devices, placing data, training side by side, the table.

Nothing here is needed to use pccl_jax. It lets each example run alone on 8 CPU devices, or
unchanged under `mpiexec -n 4`, and train the same thing twice to compare the libraries.
"""

import argparse
import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import pccl_jax

DEVICES_ALONE = 8
# Where mpiexec (MPICH, Intel MPI; Open MPI) and srun say how many processes they started.
LAUNCHED_PROCESSES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
# Another order of summation moves a metric by about 1e-6 in a step; training can amplify it.
METRIC_RTOL = 1e-4


@dataclass
class Run:
    """One training run: `step(state, *batch)` returns the next state and named metrics."""

    step: Callable[..., tuple[Any, dict[str, jax.Array]]]
    state: Any
    seconds: float = 0.0


def parser(description: str, *, steps: int, batch: int) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=description)
    options.add_argument(
        "--collectives",
        choices=["lax", "pccl", "both"],
        default="both",
        help="whose collectives; both: train twice and compare the losses (default)",
    )
    options.add_argument("--algorithm", help="have pccl_jax use this one, such as hier_ring")
    options.add_argument("--steps", type=int, default=steps)
    options.add_argument(
        "--devices",
        type=int,
        help=f"CPU devices in each process (default: {DEVICES_ALONE} alone, 1 under a launcher)",
    )
    options.add_argument("--batch", type=int, default=batch, help="examples in a global batch")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--check-vma", action=argparse.BooleanOptionalAction, default=True)
    return options


def start(args: argparse.Namespace) -> Mesh:
    """Join the other processes, if any, and return a mesh of every device on the axis 'data'."""
    launched = any(int(os.environ.get(name, 1)) > 1 for name in LAUNCHED_PROCESSES)
    devices = args.devices or (1 if launched else DEVICES_ALONE)
    jax.config.update("jax_num_cpu_devices", devices)
    pccl_jax.init()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    if args.batch % mesh.size:
        raise SystemExit(
            f"--batch {args.batch} does not divide among {mesh.size} devices: "
            f"pass a multiple of {mesh.size}."
        )
    return mesh


def say(*words: object) -> None:
    """Print, on process 0 only."""
    if jax.process_index() == 0:
        print(*words, flush=True)


def place(array: np.ndarray, mesh: Mesh, spec: PartitionSpec) -> jax.Array:
    """Lay out an array that every process holds in full; each device takes only its part."""
    return jax.make_array_from_callback(
        array.shape, NamedSharding(mesh, spec), lambda index: array[index]
    )


def libraries(args: argparse.Namespace) -> list[str]:
    return ["lax", "pccl"] if args.collectives == "both" else [args.collectives]


def using(args: argparse.Namespace) -> contextlib.AbstractContextManager[Any]:
    """`with using(args):` has pccl_jax take the algorithm of the command line, if any."""
    return pccl_jax.using(algorithm=args.algorithm) if args.algorithm else contextlib.nullcontext()


def train(runs: dict[str, Run], batches: Iterable[tuple[jax.Array, ...]], every: int) -> None:
    """Take each batch through every run, printing metrics; exit with an error if they part."""
    for count, batch in enumerate(batches, start=1):
        metrics = {name: advance(run, batch, timed=count > 1) for name, run in runs.items()}
        if count == 1 or count % every == 0:
            say(progress(count, runs, metrics))
            compare(count, metrics)


def advance(run: Run, batch: tuple[jax.Array, ...], *, timed: bool) -> dict[str, float]:
    """One step. The first is not timed: it compiles."""
    began = time.perf_counter()
    run.state, metrics = run.step(run.state, *batch)
    # Waiting each step is needed: jax < 0.12 hangs when many launches are in flight on CPU.
    values = {metric: float(value) for metric, value in metrics.items()}
    run.seconds += timed * (time.perf_counter() - began)
    return values


def progress(count: int, runs: dict[str, Run], metrics: dict[str, dict[str, float]]) -> str:
    parts = [f"step {count:4d}"]
    for metric in next(iter(metrics.values())):
        parts.append(f"{metric}  " + "  ".join(f"{n} {v[metric]:.5f}" for n, v in metrics.items()))
    if count > 1:
        rates = (f"{name} {(count - 1) / run.seconds:.1f}" for name, run in runs.items())
        parts.append("steps/s  " + "  ".join(rates))
    return "   ".join(parts)


def compare(count: int, metrics: dict[str, dict[str, float]]) -> None:
    first, *others = (list(values.values()) for values in metrics.values())
    # Written so that a NaN counts as a difference.
    if not all(np.allclose(other, first, rtol=METRIC_RTOL, atol=0) for other in others):
        raise SystemExit(f"step {count}: the runs differ by more than {METRIC_RTOL:g}: {metrics}")


def print_choices() -> None:
    """Print which algorithm each collective took, like collectives on one line."""
    counts = Counter(
        (
            choice.collective,
            f"{choice.dtype}[{','.join(map(str, choice.shape))}]",
            f"{choice.nbytes:,}",
            f"{choice.ranks} on {choice.nodes or 'uneven'}",
            choice.algorithm,
            choice.reason,
        )
        for choice in pccl_jax.choices()
    )
    if not counts:
        return
    rows = [("collective", "operand", "bytes", "ranks on nodes", "algorithm", "reason", "times")]
    rows += [(*row, str(times)) for row, times in counts.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    say("\nThe algorithm each collective took, and how often it was compiled:")
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say("  " + "  ".join(cells).rstrip())
