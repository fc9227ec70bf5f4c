"""Collectives for JAX that scale: a drop-in for jax.lax.psum, all_gather and psum_scatter.

    import pccl_jax
    ...
    weights = pccl_jax.all_gather(shard, "data", tiled=True)   # inside jit and shard_map

Importing touches no device and no MPI.
"""

from pccl_jax.accelerate import accelerate, install, uninstall
from pccl_jax.api import (
    algorithms,
    all_gather,
    all_reduce,
    pmax,
    pmean,
    pmin,
    psum,
    psum_scatter,
    pvary,
    reduce_scatter,
)
from pccl_jax.dispatch import Choice, choices
from pccl_jax.errors import ConfigurationError, InternalError, PcclError, ScheduleError
from pccl_jax.explain import Explanation, explain
from pccl_jax.runtime import init, register_handlers, topology, using
from pccl_jax.topology import Topology

__version__ = "0.1.0"

__all__ = [
    "Choice",
    "ConfigurationError",
    "Explanation",
    "InternalError",
    "PcclError",
    "ScheduleError",
    "Topology",
    "accelerate",
    "algorithms",
    "all_gather",
    "all_reduce",
    "choices",
    "explain",
    "init",
    "install",
    "pmax",
    "pmean",
    "pmin",
    "psum",
    "psum_scatter",
    "pvary",
    "reduce_scatter",
    "register_handlers",
    "topology",
    "uninstall",
    "using",
]
