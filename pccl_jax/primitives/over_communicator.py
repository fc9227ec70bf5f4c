"""The typing of collectives over an MPI communicator, in place of mesh axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from pccl_jax._jax_compat import CallOrder, has_known_shape
from pccl_jax.primitives.common import lower_python
from pccl_jax.runtime import Communicator


def communicator_of(axes: Sequence[Any]) -> Communicator | None:
    """The communicator that stands in place of axis names, or None."""
    return axes[0] if axes and isinstance(axes[0], Communicator) else None


def ordered_type(x: Any, shape: Sequence[int], communicator: Communicator) -> tuple[Any, Any]:
    """Result type and effects: calls on a communicator run in order, and all of them."""
    whole = x.sharding.update(spec=jax.P())  # the program is for one device
    return x.update(shape=tuple(shape), sharding=whole), {CallOrder(communicator)}


def gathered(shape: Sequence[int], dimension: int, size: int, tiled: bool) -> list[int]:
    """The shape after an all-gather of ``size`` chunks."""
    if tiled:
        return [*shape[:dimension], size * shape[dimension], *shape[dimension + 1 :]]
    return [*shape[:dimension], size, *shape[dimension:]]


def scattered(shape: Sequence[int], dimension: int, size: int, tiled: bool) -> list[int]:
    """The shape of one chunk of ``size``."""
    left = [shape[dimension] // size] if tiled else []
    return [*shape[:dimension], *left, *shape[dimension + 1 :]]


def lower_alone(ctx: Any, x: Any, communicator: Communicator) -> Any:
    """The lowering where there is nothing to move: of one process, or no elements."""
    if not has_known_shape(ctx.avals_in[0]):
        raise NotImplementedError(
            f"comm= needs shapes without symbols, got {ctx.avals_in[0].shape}: export the program "
            "once for each shape."
        )
    if communicator.size > 1 and 0 not in ctx.avals_out[0].shape:
        raise NotImplementedError(
            "comm= serves CPU devices only, so far: run with JAX_PLATFORMS=cpu, or take the "
            "program of one mesh over all processes, with axis names."
        )
    return lower_python(lambda x: x.reshape(ctx.avals_out[0].shape), ctx, x)
