"""Explains the collectives of a function."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from pccl_jax._jax_compat import needed
from pccl_jax.explain.line import Line, explain_found
from pccl_jax.explain.table import table
from pccl_jax.explain.walk import collectives


@dataclass(frozen=True)
class Explanation(Sequence[Line]):
    """The collectives of some programs, one a line, in the order of the programs.

    A sequence of :class:`Line`; ``str`` and ``print`` make a table of it.
    """

    lines: tuple[Line, ...]

    def __getitem__(self, index: Any) -> Any:
        return self.lines[index]

    def __len__(self) -> int:
        return len(self.lines)

    def __str__(self) -> str:
        return table(self.lines)

    def to_json(self, *, indent: int | None = None) -> str:
        """``{"collectives": [...]}``, an object with the attributes of a :class:`Line` each."""
        return json.dumps({"collectives": [line.as_dict() for line in self]}, indent=indent)


def explain(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Explanation:
    """Traces ``fn(*args, **kwargs)``, without running it, and explains its collectives.

    One line for each collective of the program that jit would lower, after AD and batching: what it
    is, over which axis, among how many ranks and nodes, how many bytes, which algorithm serves it
    and why, how long the cost model thinks it takes, how often it runs and where it is in your
    code.
    Collectives of jax.lax are there too, with what ``accelerate`` would do. Choices are made as for
    a program that is compiled now: ``using``, the environment and learned models have their say.

    Args:
        fn: a function, jitted or not, whose arguments are known up to their values.
        args: arguments, or ``jax.ShapeDtypeStruct`` in place of arrays.
        kwargs: the same by keyword.

    Returns:
        An :class:`Explanation`: print it, take its lines, or ``to_json()``.

    Raises:
        TypeError: where ``fn`` is not callable.
        Exception: what tracing ``fn`` raises.

    Example:
        >>> import jax, jax.numpy as jnp, pccl_jax
        >>> mesh = jax.sharding.Mesh(jax.devices(), ("x",))
        >>> f = jax.shard_map(lambda x: pccl_jax.psum(x, "x"), mesh=mesh,
        ...                   in_specs=jax.P("x"), out_specs=jax.P())
        >>> explained = pccl_jax.explain(f, jnp.arange(len(jax.devices())))
        >>> [(line.collective, line.axis, line.dtype) for line in explained]
        [('all_reduce', "'x'", 'int32')]
    """
    if not callable(fn):
        raise TypeError(
            f"explain expects a function and its arguments, got {type(fn).__name__}: "
            "explain(f, x), not explain(f(x))."
        )
    program = needed(jax.make_jaxpr(fn)(*args, **kwargs))
    return Explanation(lines_of(getattr(fn, "__name__", "program"), program))


def lines_of(name: str, program: Any, axis_context: Any = None) -> tuple[Line, ...]:
    """The lines of a jaxpr, without its constants."""
    found = collectives(program, axis_context)
    return tuple(explain_found(name, one) for one in found)
