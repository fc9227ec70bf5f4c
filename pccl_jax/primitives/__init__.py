"""The three collectives as JAX primitives: typing, AD, batching and lowering rules."""

from pccl_jax.primitives.all_gather import all_gather_p
from pccl_jax.primitives.all_reduce import all_reduce_p
from pccl_jax.primitives.reduce_scatter import reduce_scatter_p

__all__ = ["all_gather_p", "all_reduce_p", "reduce_scatter_p"]
