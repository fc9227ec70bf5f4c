"""Descriptions of H200 hosts, and handlers to compile against: the package's, or a stub's."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import topologies
from jax.sharding import Mesh

from pccl_jax.runtime import MODULES
from pccl_jax.runtime.native import missing_handlers

FOLDER = Path(__file__).parent
MeshOf = Callable[..., Mesh]


def no_plugin() -> str | None:
    """Why nothing can be compiled for GPUs here, or None."""
    found = importlib.util.find_spec("jax_plugins")
    if found is None or importlib.util.find_spec("jax_plugins.xla_cuda13") is None:
        return "there is no jax-cuda13-plugin (make gpu-aot installs it)"
    return None


def capsule(address: int) -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    )
    return new(address, None, None)


def stub_module(library: Path) -> ModuleType:
    """What ``pccl_jax._pccl_cuda`` offers to whoever registers its handlers."""
    source, headers = FOLDER / "stub.cc", jax.ffi.include_dir()
    command = ["g++", "-std=c++17", "-w", "-fPIC", "-shared", f"-I{headers}", source, "-o", library]
    subprocess.run(list(map(str, command)), check=True, timeout=200)
    stub = ctypes.CDLL(str(library))

    def address(symbol: str) -> Any:
        return ctypes.cast(getattr(stub, symbol), ctypes.c_void_p).value

    def data(symbol: str) -> Any:
        function = getattr(stub, symbol)
        function.restype = ctypes.c_void_p
        return capsule(function())

    module = ModuleType(MODULES["cuda"])
    vars(module)["handlers"] = lambda: {
        stage: capsule(address(f"stub_{stage}")) for stage in ("instantiate", "execute")
    }
    vars(module)["state_type"] = lambda: {
        part: data(f"stub_{part}") for part in ("type_id", "type_info")
    }
    return module


@pytest.fixture(scope="session")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Any]]:
    """Devices of a description, ``partitions x hosts x devices``, and handlers for them."""
    if wrong := no_plugin():
        if os.environ.get("PCCL_TEST_GPU_AOT"):
            pytest.fail(f"PCCL_TEST_GPU_AOT is set, and {wrong}")
        pytest.skip(f"NOT COMPILED FOR GPUS: {wrong}")
    if importlib.util.find_spec(MODULES["cuda"]) is None:
        library = tmp_path_factory.mktemp("stub") / "libstub.so"
        sys.modules[MODULES["cuda"]] = stub_module(library)
        missing_handlers.cache_clear()
    card = (FOLDER / "h200.txtpb").read_text(encoding="utf-8")

    def devices(topology: str) -> list[Any]:
        described = topologies.get_topology_desc("", "cuda", topology=topology, target_config=card)
        return list(described.devices)

    return devices


@pytest.fixture
def mesh_of(gpus: Callable[[str], list[Any]]) -> MeshOf:
    def mesh(topology: str, *shape: int, order: list[int] | None = None) -> Mesh:
        devices = np.array(gpus(topology))
        devices = devices if order is None else devices[order]
        return Mesh(devices.reshape(shape or devices.shape), ("x", "y", "z")[: len(shape) or 1])

    return mesh
