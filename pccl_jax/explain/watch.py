"""Explains every program that some code lowers."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from pccl_jax._jax_compat import observe_lowering
from pccl_jax.explain.explanation import lines_of
from pccl_jax.explain.line import Line


@contextlib.contextmanager
def watching() -> Iterator[list[Line]]:
    """Gathers the lines of each program that is lowered inside, in any thread, as it is lowered.

    A program that was compiled before is not lowered again, and not seen. Programs of one name,
    such as one function for several shapes, are numbered.

    Example:
        >>> from pccl_jax.explain import watching
        >>> with watching() as lines:
        ...     pass  # call jitted functions
        >>> lines
        []
    """
    lines: list[Line] = []
    seen: Counter[str] = Counter()

    def see(name: str, program: Any, axis_context: Any) -> None:
        seen[name] += 1
        title = name if seen[name] == 1 else f"{name} (no. {seen[name]})"
        lines.extend(lines_of(title, program.jaxpr, axis_context))

    with observe_lowering(see):
        yield lines
