"""pccl_jax, once for each algorithm: ``pccl`` is its own choice, ``pccl:ring`` a given one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pccl_jax
from pccl_jax.cli._bench.cases import AXIS
from pccl_jax.cli._bench.contenders._jitted import Body, Jitted

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
    return Jitted("pccl" if wished is None else f"pccl:{wished}", bodies)
