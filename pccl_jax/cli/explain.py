"""Run a script and list its collectives: algorithm, why, predicted time, line of the script.

One line for each collective of every program that the script compiles, after differentiation and
batching. What the script prints goes to stdout as ever, the table follows; with --json the script's
output goes to stderr. The exit status is the script's.
"""

from __future__ import annotations

import argparse
import contextlib
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import jax

from pccl_jax.accelerate import install
from pccl_jax.errors import ConfigurationError
from pccl_jax.explain import Explanation, watching


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pccl-jax explain``."""
    parser.add_argument("--json", action="store_true", help="print one JSON object to stdout")
    parser.add_argument(
        "--accelerate",
        action="store_true",
        help="call pccl_jax.install() first: collectives of jax.lax are ours as well",
    )
    parser.add_argument("script", type=Path, help="a Python file")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="arguments of the script, options too"
    )


def run(args: argparse.Namespace) -> int:
    """Run the script and print; returns the script's exit status.

    What the script raises goes on, after what was seen until then has been printed.

    Raises:
        ConfigurationError: where there is no such script.
    """
    if not args.script.is_file():
        raise ConfigurationError(f"no file {str(args.script)!r}: name the Python file to run.")
    if args.accelerate:
        install()
    status = 0
    with watching() as lines:
        try:
            with _output(args.json), _as_main(args.script, args.arguments):
                runpy.run_path(str(args.script), run_name="__main__")
        except SystemExit as end:
            status = _status(end)
        finally:
            _show(Explanation(tuple(lines)), as_json=args.json)
    return status


def _output(as_json: bool) -> contextlib.AbstractContextManager[object]:
    return contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()


@contextlib.contextmanager
def _as_main(script: Path, arguments: list[str]) -> Iterator[None]:
    """The command line and the import path that a script has when Python runs it."""
    argv, path = sys.argv, sys.path[:]
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


def _status(end: SystemExit) -> int:
    """What Python makes of an exit: words go to stderr and count as 1."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


def _show(explanation: Explanation, *, as_json: bool) -> None:
    """Print, once if there are several processes."""
    if jax.process_index() == 0:
        text = explanation.to_json(indent=2) if as_json else f"\n{explanation}"
        print(text, flush=True)
