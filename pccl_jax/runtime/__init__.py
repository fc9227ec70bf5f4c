"""What the process is part of: the extension, the other processes, the settings."""

from pccl_jax.runtime.communicators import Communicator, joined
from pccl_jax.runtime.handlers import register_handlers
from pccl_jax.runtime.native import (
    MODULES,
    ORDERED_TARGET,
    TARGET,
    gpu_modules,
    has_gpu_module,
)
from pccl_jax.runtime.places import Places, place_devices, topology
from pccl_jax.runtime.settings import preferred_algorithm, using
from pccl_jax.runtime.startup import init
from pccl_jax.runtime.world import World, joined_world

__all__ = [
    "MODULES",
    "ORDERED_TARGET",
    "TARGET",
    "Communicator",
    "Places",
    "World",
    "gpu_modules",
    "has_gpu_module",
    "init",
    "joined",
    "joined_world",
    "place_devices",
    "preferred_algorithm",
    "register_handlers",
    "topology",
    "using",
]
