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
from pccl_jax.api.over_communicator import pvary

__all__ = [
    "algorithms",
    "all_gather",
    "all_reduce",
    "pmax",
    "pmean",
    "pmin",
    "psum",
    "psum_scatter",
    "pvary",
    "reduce_scatter",
]
