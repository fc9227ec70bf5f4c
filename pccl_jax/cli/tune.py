"""Learn which algorithm is the fastest on this machine, for the choice at trace time.

Measures every algorithm on many sizes and groups (under mpiexec or srun all processes measure in
step), fits one support vector machine a collective, reports how well it chooses for sizes that it
had not seen, and writes the model where programs find it: the user's configuration folder
(PCCL_CONFIG_HOME, else XDG_CONFIG_HOME/pccl_jax, else ~/.config/pccl_jax), or --output. Every
figure that was measured is kept beside it, so that --from can fit again, also to several runs.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pccl_jax
from pccl_jax.cli._bench import arguments
from pccl_jax.cli._bench.job import is_root, processes
from pccl_jax.cli._bench.report import measured
from pccl_jax.cli._libraries import package_version
from pccl_jax.cli._plotting import plot_file, pyplot
from pccl_jax.cli._tune import decisions, machine, report, sources, sweep
from pccl_jax.dispatch.machine import bench_file, fingerprint, machine_file, model_file
from pccl_jax.dispatch.model import Model
from pccl_jax.dispatch.samples import samples_of_bench, tabulate
from pccl_jax.errors import ConfigurationError
from pccl_jax.runtime.world import joined_world
from pccl_jax.simulate import dump_machine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pccl-jax tune``."""
    option = parser.add_argument
    option(
        "--from",
        dest="files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="fit to files of `bench --json`, or of earlier runs, instead of measuring",
    )
    option(
        "--simulate",
        metavar="MACHINE",
        help="fit to simulated times of a machine (see `simulate --list-machines`) or of a file",
    )
    arguments.add_sweep(parser, "256 B to 64 MiB, powers of 4 and odd sizes between them")
    option(
        "--ranks-per-node",
        type=arguments.counts,
        default=(),
        metavar="N,...",
        help="measure with emulated nodes of so many ranks as well",
    )
    arguments.add_time(parser, sweep.THOROUGH)
    option(
        "--quick", action="store_true", help="few sizes and rounds: half a minute, a rough model"
    )
    option("--output", type=arguments.output_file, metavar="FILE", help="write the model there")
    option("--plot", type=plot_file, metavar="FILE", help="draw what the model chooses")


def run(args: argparse.Namespace) -> int:
    """Measure or read, fit, report, write; 1 where a result was wrong."""
    training = _training()
    if args.plot:
        pyplot()
    started = processes()
    if args.files or args.simulate:
        if started > 1:
            raise ConfigurationError("nothing is measured, in one process: run it without mpiexec")
        if args.files and args.simulate:
            raise ConfigurationError("--from and --simulate are two sources: give one of them")
        found = sources.from_files(args.files) if args.files else sources.simulated(args.simulate)
        _finish(args, training, found)
        return 0
    whole = measured(sweep.plans(args, started))
    return _by_root(lambda: _finish(args, training, _kept(args, whole)), len(whole["failures"]))


def _training() -> Any:
    try:
        return importlib.import_module("pccl_jax.dispatch.training")
    except ImportError as error:
        raise ConfigurationError(
            f"tune needs scikit-learn ({error}): pip install 'pccl_jax[tune]'"
        ) from error


def _by_root(action: Callable[[], None], failures: int) -> int:
    """Acts in one process; all end alike, 1 where anything failed or the action raises."""
    world = joined_world()
    status = 1
    try:
        if is_root():
            action()
            status = min(1, failures)
    finally:
        if world is not None:
            status = world.comm.bcast(status)
    return status


def _kept(args: argparse.Namespace, whole: dict[str, Any]) -> sources.Source:
    """The samples of a measurement, which is written first: hours of it must not be lost."""
    path = args.output.with_suffix(".bench.json") if args.output else bench_file()
    _write(path, json.dumps(whole) + "\n")
    print(f"Measurements are in {path}", file=sys.stderr)
    for failure in whole["failures"]:
        print(f"FAILED {failure}", file=sys.stderr)
    return sources.Source(samples_of_bench(whole), dict(fingerprint()))


def _finish(args: argparse.Namespace, training: Any, source: sources.Source) -> None:
    table = tabulate(source.samples)
    if not table:
        raise ConfigurationError(
            f"there is nothing to learn: of {len(source.samples)} samples no two are of different "
            "algorithms for the same collective, size and group; measure --algorithms all"
        )
    trained = training.train(table, lambda text: print(f"Fitting {text}", file=sys.stderr))
    model = Model(
        machine=source.machine,
        simulated=source.simulated,
        made=_made(len(source.samples)),
        svms={name: one.svm for name, one in trained.items()},
    )
    print(report.render(trained))
    path = args.output or model_file(source.machine)
    _write(path, model.to_json())
    print(f"\nThe model is in {path}{_use(path, source)}", flush=True)
    if not source.simulated:
        _write_machine(args, source)
    if args.plot:
        decisions.plot(model.svms, table, args.plot)


def _write_machine(args: argparse.Namespace, source: sources.Source) -> None:
    """The cost model decides about what the learned model has not seen: it gets its figures too."""
    fitted = machine.calibrated(source)
    if fitted is None:
        return
    path = args.output.with_suffix(".machine.json") if args.output else machine_file(source.machine)
    _write(path, dump_machine(fitted))
    print(f"The cost model's figures are in {path}", flush=True)


def _made(samples: int) -> dict[str, Any]:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    versions = {name: package_version(name) for name in ("jax", "numpy", "scikit-learn")}
    return {"date": now, "samples": samples, "pccl_jax": pccl_jax.__version__, **versions}


def _use(path: Path, source: sources.Source) -> str:
    if path == model_file() and not source.simulated:
        return "; programs on this machine use it from now on (PCCL_MODEL=none does not)."
    return f"; PCCL_MODEL={path} makes a program use it."


def _write(path: Path, text: str) -> None:
    """Replaces the file as a whole: a program that starts meanwhile reads the old one or the new.

    Raises:
        ConfigurationError: where the folder cannot be written to.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
            new = Path(folder, path.name)
            new.write_text(text, encoding="utf-8")
            new.replace(path)
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error}; give another --output") from error
