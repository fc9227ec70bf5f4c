"""The public functions that jax.lax has too, as programs of the library, an operand and an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Call = Callable[..., Any]

RANKS = 4

#: Linear in the operand, which is [4, 2] on every rank.
LINEAR: dict[str, Call] = {
    "psum": lambda lib, x, axis: lib.psum(x, axis),
    "pmean": lambda lib, x, axis: lib.pmean(x, axis),
    "all_gather": lambda lib, x, axis: lib.all_gather(x, axis),
    "all_gather last": lambda lib, x, axis: lib.all_gather(x, axis, axis=-1),
    "all_gather tiled": lambda lib, x, axis: lib.all_gather(x, axis, axis=1, tiled=True),
    "psum_scatter": lambda lib, x, axis: lib.psum_scatter(x, axis),
    "psum_scatter tiled": lambda lib, x, axis: lib.psum_scatter(x, axis, tiled=True),
}
CALLS: dict[str, Call] = LINEAR | {
    "pmax": lambda lib, x, axis: lib.pmax(x, axis),
    "pmin": lambda lib, x, axis: lib.pmin(x, axis),
}


def every(lib: Any, x: Any, axis: Any = "x") -> dict[str, Any]:
    """The result of each call."""
    return {name: call(lib, x, axis) for name, call in CALLS.items()}


def every_linear(lib: Any, x: Any, axis: Any = "x") -> dict[str, Any]:
    """The result of each call that has a derivative."""
    return {name: call(lib, x, axis) for name, call in LINEAR.items()}


def three(lib: Any, x: Any, axis: Any = "x") -> dict[str, Any]:
    """One call for each of our primitives."""
    return {name: CALLS[name](lib, x, axis) for name in ("psum", "all_gather", "psum_scatter")}


def without_scatter(lib: Any, x: Any, axis: Any = "x") -> dict[str, Any]:
    """Where lax does not know the type of a scatter."""
    return {name: call(lib, x, axis) for name, call in LINEAR.items() if "scatter" not in name}
