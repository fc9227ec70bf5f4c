"""pccl_jax, once for each algorithm: ``pccl`` is its own choice, ``pccl:ring`` a given one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pccl_jax
from pccl_jax.cli._bench.cases import AXIS, Case
from pccl_jax.cli._bench.contenders._jitted import Body, Jitted
from pccl_jax.cli._bench.job import place_of
from pccl_jax.dispatch import Request, mpi_obstacle
from pccl_jax.runtime import joined_world
from pccl_jax.types import Collective, Op

_CALLS: dict[str, Callable[..., object]] = {
    "all_gather": partial(pccl_jax.all_gather, axis_name=AXIS, tiled=True),
    "reduce_scatter": partial(pccl_jax.psum_scatter, axis_name=AXIS, tiled=True),
    "all_reduce": partial(pccl_jax.psum, axis_name=AXIS),
}


def contenders(algorithms: Sequence[str]) -> list[Jitted]:
    """A contender for each algorithm, with the collectives that the algorithm has."""
    return [_contender(algorithm) for algorithm in algorithms]


def _contender(algorithm: str) -> Jitted:
    wished = None if algorithm == "auto" else algorithm
    bodies: dict[str, Body] = {
        collective: partial(call, algorithm=wished)
        for collective, call in _CALLS.items()
        if wished is None or wished in pccl_jax.algorithms(collective)
    }
    if wished is None:
        return Jitted("pccl", bodies)
    return (OfMpi if wished == "mpi" else Jitted)(f"pccl:{wished}", bodies)


class OfMpi(Jitted):
    """The algorithm that only some programs and types can have."""

    def serves(self, case: Case) -> bool:
        """Whether the dispatcher would let it."""
        world = joined_world()
        kind = Collective[case.collective.upper()]
        request = Request(
            collective=kind,
            op=Op.SUM,
            axis=repr(AXIS),
            shape=(case.operand_elements,),
            dtype=case.dtype,
            nbytes=case.moved_bytes,
            nodes=case.ranks,
            local=1,
            mpi=None if world is None else world.mpi,
            ranks_per_process=place_of(case)["ranks_per_process"],
        )
        return super().serves(case) and mpi_obstacle(request) is None
