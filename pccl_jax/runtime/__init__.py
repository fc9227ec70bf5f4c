"""What the process is part of: the extension, the topology, the settings."""

from pccl_jax.runtime.native import register_handlers
from pccl_jax.runtime.processes import init, node_of_mesh, topology
from pccl_jax.runtime.settings import preferred_algorithm, using

__all__ = [
    "init",
    "node_of_mesh",
    "preferred_algorithm",
    "register_handlers",
    "topology",
    "using",
]
