"""The ``pccl-jax`` command. A subcommand is a module of this folder whose name has no underscore.

It offers ``add_arguments(parser)`` and ``run(args) -> int`` (the exit status); the first line of
its docstring is its help. Only the module that was asked for is imported, so that ``--help``
does no more than that; what a subcommand imports, it waits for alone.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path

from pccl_jax.errors import ConfigurationError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    try:
        args = _parser(wanted).parse_args(arguments)
        status: int = args.run(args)
    except ConfigurationError as error:
        print(f"pccl-jax: {error}", file=sys.stderr)
        return 1
    return status


def _parser(wanted: str | None) -> argparse.ArgumentParser:
    """A parser that knows every subcommand's name, and the arguments of ``wanted``."""
    parser = argparse.ArgumentParser(prog="pccl-jax", description="Collectives for JAX that scale.")
    parser.add_argument("--version", action="version", version=f"pccl_jax {_version()}")
    subparsers = parser.add_subparsers(required=True, metavar="command")
    for name, summary in _commands().items():
        subparser = subparsers.add_parser(name, help=summary, description=summary)
        if name == wanted:
            module = importlib.import_module(f"pccl_jax.cli.{name}")
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    return parser


def _version() -> str:
    """The installed version; a source tree on the path has none, and its commands still run."""
    try:
        return importlib.metadata.version("pccl_jax")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _commands() -> dict[str, str]:
    """Every subcommand and its one-line help, read without importing it."""
    commands = {}
    for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        commands[path.stem] = docstring.partition("\n")[0].rstrip(".").replace("%", "%%")
    return commands
