"""Tells the GPU module what the process is part of: its devices, the others', NCCL, MPI."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax

from pccl_jax._jax_compat import distributed_client
from pccl_jax.runtime.native import MODULES
from pccl_jax.runtime.settings import patience_s
from pccl_jax.runtime.world import joined_world


def connect_gpus(platform: str) -> None:
    """Hands what :func:`join_gpus` does to the module for ``platform``, and again after init().

    Where the process has no GPU nothing is done: its program is compiled for GPUs that are
    elsewhere.
    """
    if any(device.platform == "gpu" for device in jax.local_devices()):
        _connect(platform, joined_world() is not None)


@functools.cache
def _connect(platform: str, after_init: bool) -> None:
    join_gpus(importlib.import_module(MODULES[platform]))


def join_gpus(module: ModuleType) -> str:
    """Hands everything to ``module``, which is ``pccl_jax._pccl_cuda`` or ``_pccl_rocm``.

    To be called once the backend exists, before the first collective runs.

    Returns:
        The MPI library that GPUs may be reached by, e.g. ``"openmpi, GPU-aware"``; ``""`` if none.
    """
    local = [d for d in jax.local_devices() if d.platform == "gpu"]
    answer: str = module.join(
        process=jax.process_index(),
        ordinals={d.local_hardware_id: d.id for d in local},
        owners=owners(jax.devices()),
        exchange_id=exchange_id if jax.process_count() > 1 else None,
        nccl_file=nccl_file(),
        mpi=_mpi(),
    )
    return answer


def owners(devices: Sequence[Any]) -> dict[int, tuple[int, int]]:
    """By id of each device: its process, and its number among the devices of that process."""
    counts: dict[int, int] = {}
    found = {}
    for device in sorted(devices, key=lambda d: d.id):
        index = counts.get(device.process_index, 0)
        found[device.id] = (device.process_index, index)
        counts[device.process_index] = index + 1
    return found


def exchange_id(key: str, unique_id: bytes | None) -> bytes:
    """Agrees on the id of an NCCL communicator through jax.distributed's key-value store.

    Args:
        key: names the communicator.
        unique_id: what its first member has made, 128 bytes; None for the others, who wait
            for it, at most ``PCCL_TIMEOUT_S`` (default 300) seconds.

    Returns:
        The id.

    Raises:
        RuntimeError: where ``jax.distributed`` was not initialised, or the first member does not
            come in time.
    """
    client = distributed_client()
    if client is None:
        raise RuntimeError("several processes, but jax.distributed was not initialised")
    if unique_id is not None:
        client.key_value_set_bytes(key, unique_id)
        return unique_id
    _, timeout_s = patience_s()
    try:
        answer: bytes = client.blocking_key_value_get_bytes(key, int(1000 * timeout_s))
    except jax.errors.JaxRuntimeError as e:
        raise RuntimeError(
            f"the process of a communicator's first device has not made it within {timeout_s:g} s "
            "(PCCL_TIMEOUT_S). Do all processes run the same program? If that one is only slow, "
            f"raise PCCL_TIMEOUT_S. jax.distributed says: {e}"
        ) from e
    return answer


def nccl_file() -> str:
    """The NCCL of NVIDIA's package, which jax[cuda] installs; ``""`` where there is none."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "nccl" / "lib" / "libnccl.so.2"
        if path.exists():
            return str(path)
    return ""


def _mpi() -> dict[str, Any] | None:
    world = joined_world()
    if world is None:
        return None
    from mpi4py import MPI

    return {
        "mpi4py_file": MPI.__file__,
        "any_source": MPI.ANY_SOURCE,
        "comm": MPI._handleof(world.device_comm),
        "mpi_rank": list(range(world.processes)),
    }
