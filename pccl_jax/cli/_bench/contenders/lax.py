"""jax.lax: XLA's own collectives."""

from __future__ import annotations

from collections.abc import Sequence

from jax import lax

from pccl_jax.cli._bench.cases import AXIS
from pccl_jax.cli._bench.contenders._jitted import Jitted


def contenders(algorithms: Sequence[str]) -> list[Jitted]:
    """The one contender ``lax``; it has no algorithms to choose from."""
    bodies = {
        "all_gather": lambda x: lax.all_gather(x, AXIS, tiled=True),
        "reduce_scatter": lambda x: lax.psum_scatter(x, AXIS, tiled=True),
        "all_reduce": lambda x: lax.psum(x, AXIS),
    }
    return [Jitted("lax", bodies)]
