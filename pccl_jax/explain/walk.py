"""Finds the collectives of a traced program, and how often each runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pccl_jax._jax_compat import lax_collectives, shard_map_context, sub_jaxprs
from pccl_jax.accelerate import served

_LAX_NAMES = {primitive: name for name, primitive in lax_collectives.items()}


@dataclass(frozen=True)
class Runs:
    """How often a part of a program runs each time the program does.

    Attributes:
        count: at most so often; None where the program's data decides (a while loop).
        conditional: whether it may run less often, as a branch does.
    """

    count: int | None = 1
    conditional: bool = False

    def times(self, n: int | None) -> Runs:
        """As often for each of ``n`` turns of a loop."""
        return replace(self, count=None if n is None or self.count is None else n * self.count)

    def __str__(self) -> str:
        if self.count is None:
            return "?"
        return f"{'<=' if self.conditional else ''}{self.count}"


@dataclass(frozen=True)
class Found:
    """A collective in a program.

    Attributes:
        equation: of the program.
        name: of its primitive.
        axis_context: which axes of which mesh are manual there; None outside of shard_map.
        runs: how often it runs.
    """

    equation: Any
    name: str
    axis_context: Any
    runs: Runs


def collectives(
    program: Any, axis_context: Any = None, runs: Runs | None = None
) -> Iterator[Found]:
    """The collectives of a jaxpr in order, ours and lax's, in the programs that it calls too.

    Args:
        program: a jaxpr, without its constants.
        axis_context: in which it is lowered.
        runs: how often it runs; once if None.
    """
    runs = runs or Runs()
    for equation in program.eqns:
        primitive = equation.primitive
        if served(primitive) is not None or primitive in _LAX_NAMES:
            name = _LAX_NAMES.get(primitive, primitive.name)
            yield Found(equation, name, axis_context, runs)
            continue
        inside = axis_context
        if primitive.name == "shard_map":
            inside = shard_map_context(equation.params)
        for part in _lowered_parts(equation):
            yield from collectives(part, inside, _runs_inside(equation, runs))


def _lowered_parts(equation: Any) -> Iterator[Any]:
    if equation.primitive.name == "custom_linear_solve":  # the others are for AD
        solve = equation.params["jaxprs"].solve
        return sub_jaxprs({"solve": solve})
    return sub_jaxprs(equation.params)


def _runs_inside(equation: Any, runs: Runs) -> Runs:
    match equation.primitive.name:
        case "scan":
            return runs.times(equation.params["length"])
        case "while":
            return runs.times(None)
        case "cond":
            return replace(runs, conditional=True)
    return runs
