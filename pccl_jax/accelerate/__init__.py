"""Code that is written with jax.lax, run by pccl_jax without an edit."""

from pccl_jax.accelerate.lax_calls import Served, dimensions, served
from pccl_jax.accelerate.switch import accelerate, accelerated, install, uninstall

__all__ = ["Served", "accelerate", "accelerated", "dimensions", "install", "served", "uninstall"]
