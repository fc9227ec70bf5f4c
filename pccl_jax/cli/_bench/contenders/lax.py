"""jax.lax: XLA's own collectives, across processes those of Gloo unless JAX was told otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jax import lax

from pccl_jax.cli._bench.cases import AXIS
from pccl_jax.cli._bench.contenders._jitted import Jitted
from pccl_jax.runtime.world import joined_world


def contenders(algorithms: Sequence[str]) -> list[Jitted]:
    """The one contender, without algorithms to choose from: ``lax``, or the library it uses."""
    bodies = {
        "all_gather": lambda x: lax.all_gather(x, AXIS, tiled=True),
        "reduce_scatter": lambda x: lax.psum_scatter(x, AXIS, tiled=True),
        "all_reduce": lambda x: lax.psum(x, AXIS),
    }
    return [Jitted(_name(), bodies)]


def _name() -> str:
    if joined_world() is None:
        return "lax"
    library = str(getattr(jax.config, "jax_cpu_collectives_implementation"))  # noqa: B009
    return "mpi_collectives" if library == "mpi" else library  # ``mpi`` is MPI without JAX
