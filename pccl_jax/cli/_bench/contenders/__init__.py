"""Who competes. A contender is a module: one of this folder, or any that can be imported.

The module offers ``contenders(algorithms)``, which returns a sequence of :class:`Contender`.
It is imported only where it was asked for, so that it may need what others do not have.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from pccl_jax.cli._bench.cases import Case, Problem
from pccl_jax.errors import ConfigurationError

#: One run of the collective. Its result is waited for by ``jax.block_until_ready`` and compared
#: by its shards: a jax.Array, or a list of numpy arrays, one for each rank of the process.
Launch = Callable[[], Any]


class Contender(Protocol):
    """One implementation of the collectives."""

    @property
    def name(self) -> str:
        """As the tables call it."""

    def serves(self, case: Case) -> bool:
        """Whether it can do this case."""

    def prepare(self, problem: Problem) -> Launch:
        """Everything that happens once. Each launch leaves the operand as it was."""


def known() -> list[str]:
    """The contenders of this folder."""
    names = (path.stem for path in Path(__file__).parent.glob("[!_]*.py"))
    return sorted(name.replace("_", "-") for name in names)


def find(name: str, algorithms: Sequence[str]) -> list[Contender]:
    """The contenders of module ``name``.

    Args:
        name: a module of this folder, or the full name of another one; ``pccl:ring`` is
            pccl with that one algorithm.
        algorithms: for a contender that has several.

    Raises:
        ConfigurationError: where there is no such module, or it is no contender.
    """
    module, _, algorithm = name.partition(":")
    full_name = f"{__name__}.{module.replace('-', '_')}" if module in known() else module
    wished = [algorithm] if algorithm else algorithms
    try:
        found: list[Contender] = list(importlib.import_module(full_name).contenders(wished))
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"no contender {name!r} ({error}); name one of {', '.join(known())}, or a module "
            "that can be imported and has a function contenders(algorithms)"
        ) from error
    return found
