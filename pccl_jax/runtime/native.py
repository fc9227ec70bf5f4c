"""Loads the compiled modules and registers their handlers with XLA, one for each platform."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

import jax

from pccl_jax.errors import ConfigurationError

#: Names of the XLA FFI targets, each for every collective and platform: over the devices of a mesh,
#: and, on CPU, over the processes of a communicator, where calls stay in order.
TARGET = "pccl_collective"
ORDERED_TARGET = "pccl_ordered_collective"
_CPU_TARGETS = (TARGET, ORDERED_TARGET)

#: The platforms we serve, as JAX's lowering names them, and the modules with their handlers.
MODULES = {
    "cpu": "pccl_jax._native",
    "cuda": "pccl_jax._pccl_cuda",
    "rocm": "pccl_jax._pccl_rocm",
}

_COMPILERS = {"cuda": "nvcc (CUDA toolkit)", "rocm": "hipcc (ROCm)"}


@functools.cache
def extension() -> ModuleType:
    """The compiled module for CPU devices.

    Raises:
        ConfigurationError: where it cannot be imported; the message says what to do.
    """
    try:
        return importlib.import_module(MODULES["cpu"])
    except ImportError as e:
        raise ConfigurationError(
            f"the compiled part of pccl_jax cannot be loaded from {Path(__file__).parents[1]} "
            f"({e}). A checkout needs `make dev`, and hides what `pip install .` has installed: "
            "run from another folder. If it was built for another Python, `pip install "
            "--force-reinstall --no-deps pccl_jax`. `pccl-jax info` shows the details."
        ) from e


@functools.cache
def missing_handlers(platform: str) -> str | None:
    """Why there are no handlers for ``platform`` and how to get them, or None where there are.

    Not asked for CPU devices: without their handlers nothing works, and the import says so.
    """
    if platform == "cpu":
        return None
    if platform not in MODULES:
        return f"devices of platform {platform} are left to XLA"
    try:
        importlib.import_module(MODULES[platform])
    except ModuleNotFoundError as e:
        if e.name == MODULES[platform]:
            return (
                f"pccl_jax was built without its module for {platform}: build it where there is "
                f"{_COMPILERS[platform]} (docs/gpu.md)"
            )
        return f"{MODULES[platform]} cannot be loaded ({e})"
    except ImportError as e:
        return f"{MODULES[platform]} cannot be loaded ({e}); docs/gpu.md says how to build it"
    return None


def has_gpu_module() -> bool:
    """Whether the package was built with handlers for GPUs; they are not loaded."""
    return bool(_built_gpu_modules())


def gpu_modules() -> dict[str, str | None]:
    """The modules for GPUs that the package was built with: why each cannot be loaded, or None."""
    return {name: missing_handlers(platform) for platform, name in _built_gpu_modules().items()}


def _built_gpu_modules() -> dict[str, str]:
    gpus = {platform: name for platform, name in MODULES.items() if platform != "cpu"}
    return {p: name for p, name in gpus.items() if importlib.util.find_spec(name) is not None}


@functools.cache
def register_module(platform: str) -> None:
    """Makes the handlers for ``platform`` known to XLA; calls after the first do nothing.

    Raises:
        ConfigurationError: where the compiled part for them cannot be loaded.
    """
    # XLA accepts the type of the handlers' state only after the platform's backend exists. Whoever
    # lowers for a GPU has one, or none at all where a program is compiled for GPUs elsewhere.
    if platform == "cpu":
        module = extension()
        jax.devices(platform)
        state_type = module.cpu_state_type()
        handlers = {name: module.cpu_handlers(name == ORDERED_TARGET) for name in _CPU_TARGETS}
    else:
        missing = missing_handlers(platform)
        if missing is not None:
            raise ConfigurationError(missing)
        module = importlib.import_module(MODULES[platform])
        state_type, handlers = module.state_type(), {TARGET: module.handlers()}
    name = platform if platform == "cpu" else platform.upper()
    jax.ffi.register_ffi_type("pccl_collective_state", state_type, platform=name)
    for target, stages in handlers.items():
        jax.ffi.register_ffi_target(target, stages, platform=name)
