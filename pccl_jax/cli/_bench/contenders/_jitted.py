"""A contender that is a function of JAX inside jit and shard_map."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax

from pccl_jax.cli._bench.cases import Case, Problem

Body = Callable[[Any], Any]


@dataclass(frozen=True)
class Jitted:
    """What a rank computes, by collective; ``[count] -> [count']`` over the axis ``AXIS``."""

    name: str
    bodies: Mapping[str, Body]

    def serves(self, case: Case) -> bool:
        """Whether there is a function for it."""
        return case.collective in self.bodies

    def jitted(self, problem: Problem) -> Any:
        """A jitted function that no cache has seen."""
        body = self.bodies[problem.case.collective]
        mapped = jax.shard_map(
            lambda x: body(x),
            mesh=problem.mesh,
            in_specs=problem.spec,
            out_specs=problem.out_spec,
        )
        return jax.jit(mapped)

    def prepare(self, problem: Problem) -> Callable[[], Any]:
        """A call of the jitted function; nothing is donated, so its output is a fresh one."""
        function, operand = self.jitted(problem), problem.operand
        return lambda: function(operand)
