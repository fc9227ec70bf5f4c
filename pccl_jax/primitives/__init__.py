"""The three collectives as JAX primitives: typing, AD, batching and lowering rules."""

from pccl_jax.primitives.all_gather import all_gather_call, all_gather_p, lower_all_gather
from pccl_jax.primitives.all_reduce import (
    all_reduce_call,
    all_reduce_p,
    lower_all_reduce,
    vary_p,
)
from pccl_jax.primitives.common import left_to_lax, lower_python, reduce_axis
from pccl_jax.primitives.lowering import Call, Site, choose
from pccl_jax.primitives.reduce_scatter import (
    lower_reduce_scatter,
    reduce_scatter_call,
    reduce_scatter_p,
)

__all__ = [
    "Call",
    "Site",
    "all_gather_call",
    "all_gather_p",
    "all_reduce_call",
    "all_reduce_p",
    "choose",
    "left_to_lax",
    "lower_all_gather",
    "lower_all_reduce",
    "lower_python",
    "lower_reduce_scatter",
    "reduce_axis",
    "reduce_scatter_call",
    "reduce_scatter_p",
    "vary_p",
]
