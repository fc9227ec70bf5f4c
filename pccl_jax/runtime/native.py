"""Loads the extension and registers its handlers with XLA."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

import jax

from pccl_jax.errors import ConfigurationError

#: Name of the XLA FFI target, one for every collective.
TARGET = "pccl_collective"


@functools.cache
def extension() -> ModuleType:
    """The compiled module.

    Raises:
        ConfigurationError: where it cannot be imported; the message says what to do.
    """
    try:
        return importlib.import_module("pccl_jax._native")
    except ImportError as e:
        raise ConfigurationError(
            f"the compiled part of pccl_jax cannot be loaded ({e}). It was probably built for "
            "another Python: run `pip install --force-reinstall --no-deps pccl_jax`, or `make "
            "dev` in a checkout. `python -m pccl_jax info` shows the details."
        ) from e


@functools.cache
def register_handlers() -> None:
    """Makes our collectives known to XLA in this process; calls after the first do nothing.

    The first collective that is lowered does so by itself. Call it in a process that lowers none:
    that loads a compiled or exported program. It uses a device, so whatever sets up devices or
    ``jax.distributed`` comes before.

    Raises:
        ConfigurationError: where the compiled part of pccl_jax cannot be loaded.

    Example:
        >>> import pccl_jax
        >>> pccl_jax.register_handlers()
    """
    # XLA accepts the type of the handlers' state only after the platform's backend exists.
    module = extension()
    jax.devices("cpu")
    jax.ffi.register_ffi_type("pccl_collective_state", module.cpu_state_type(), platform="cpu")
    jax.ffi.register_ffi_target(TARGET, module.cpu_handlers(), platform="cpu")
