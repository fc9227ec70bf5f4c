"""What has to be there before XLA runs a collective of ours."""

from __future__ import annotations

from pccl_jax.runtime.gpu_world import connect_gpus
from pccl_jax.runtime.native import register_module


def register_handlers(platform: str = "cpu") -> None:
    """Makes our collectives known to XLA in this process; further calls do nothing.

    The first collective that is lowered does so by itself. Call it in a process that lowers none:
    that loads a compiled or exported program. It uses a device, so whatever sets up devices or
    ``jax.distributed`` comes before.

    Args:
        platform: ``cpu``, ``cuda`` or ``rocm``.

    Raises:
        ConfigurationError: where the compiled part of pccl_jax cannot be loaded.

    Example:
        >>> import pccl_jax
        >>> pccl_jax.register_handlers()
    """
    register_module(platform)
    if platform != "cpu":
        connect_gpus(platform)
