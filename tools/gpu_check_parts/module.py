"""The module of pccl_jax for the GPUs that are here."""

from __future__ import annotations

import importlib
from types import ModuleType

import jax

from pccl_jax._jax_compat import platform_of
from pccl_jax.runtime import MODULES


def gpu_platform() -> str:
    """``cuda`` or ``rocm``. Starts JAX's backend: ``pccl_jax.init()`` comes before."""
    return platform_of(jax.devices("gpu")[0])


def gpu_module() -> ModuleType:
    """``pccl_jax._pccl_cuda`` or ``pccl_jax._pccl_rocm``."""
    return importlib.import_module(MODULES[gpu_platform()])
