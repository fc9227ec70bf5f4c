"""What users call."""

from pccl_jax.api.collectives import (
    algorithms,
    all_gather,
    all_reduce,
    pmax,
    pmean,
    pmin,
    psum,
    psum_scatter,
    reduce_scatter,
)

__all__ = [
    "algorithms",
    "all_gather",
    "all_reduce",
    "pmax",
    "pmean",
    "pmin",
    "psum",
    "psum_scatter",
    "reduce_scatter",
]
