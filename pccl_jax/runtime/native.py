"""Loads the extension and registers its handlers with XLA."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

import jax

from pccl_jax.errors import ConfigurationError

#: Names of the XLA FFI targets, each for every collective: over the devices of a mesh, and over
#: the processes of a communicator, where calls stay in order.
TARGET = "pccl_collective"
ORDERED_TARGET = "pccl_ordered_collective"


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
def register_handlers(platform: str = "cpu") -> None:
    """Registers the FFI targets for ``platform``, once.

    XLA accepts the type of the handlers' state only after the platform's backend exists, and
    creating the backend must be left to the user's program (``jax.distributed`` comes first),
    so this runs when the first collective is lowered, not at import.
    """
    module = extension()
    jax.devices(platform)
    jax.ffi.register_ffi_type("pccl_collective_state", module.cpu_state_type(), platform=platform)
    for target in (TARGET, ORDERED_TARGET):
        handlers = module.cpu_handlers(target == ORDERED_TARGET)
        jax.ffi.register_ffi_target(target, handlers, platform=platform)
