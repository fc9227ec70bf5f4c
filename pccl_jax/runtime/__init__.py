"""What the process is part of: the extension, the other processes, the settings."""

from pccl_jax.runtime.native import MODULES, TARGET, has_gpu_module, register_handlers
from pccl_jax.runtime.places import place_devices, topology
from pccl_jax.runtime.settings import preferred_algorithm, using
from pccl_jax.runtime.startup import init
from pccl_jax.runtime.world import joined_world

__all__ = [
    "MODULES",
    "TARGET",
    "has_gpu_module",
    "init",
    "joined_world",
    "place_devices",
    "preferred_algorithm",
    "register_handlers",
    "topology",
    "using",
]
