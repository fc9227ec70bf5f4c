"""The GPU executor, compiled for a device that only pretends to be one."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from .group import Knobs

ROOT = Path(__file__).parents[2]
FAKE = Path(__file__).parent / "fake"
#: What of the executor needs neither a GPU runtime nor XLA, and what it shares with the CPU's.
SOURCES = [
    *(ROOT / "ffi" / "gpu" / f"{name}.cc" for name in ("communicator", "execution", "plan")),
    *(ROOT / "ffi" / "gpu" / f"{name}.cc" for name in ("mpi_communicator", "nccl_communicator")),
    ROOT / "ffi" / "gpu" / "nccl_library.cc",
    ROOT / "ffi" / "schedule.cc",
    ROOT / "ffi" / "transport" / "mpi_library.cc",
    ROOT / "kernels" / "copy.cc",
    ROOT / "kernels" / "reduce.cc",
]
#: What needs the headers of XLA, ours and the side of XLA.
XLA_SOURCES = [
    *(ROOT / "ffi" / "gpu" / f"{name}.cc" for name in ("site", "world", "connections", "handlers")),
    ROOT / "ffi" / "gpu" / "watchdog.cc",
    FAKE / "xla.cc",
]
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
OPTIONS = ["-std=c++17", "-O0", "-fPIC", "-ffp-contract=off", "-fno-trapping-math"]
COMPILE = ["g++", *OPTIONS, *WARNINGS, f"-I{ROOT}"]


def xla_headers() -> Path | None:
    """Those of the oldest supported version, which the GPU module is compiled with."""
    folders = [Path(sys.prefix) / "ffi-headers" / "jaxlib" / "include", Path(jax.ffi.include_dir())]
    for folder in folders:
        header = folder / "xla" / "ffi" / "api" / "c_api.h"
        if header.exists() and "#define XLA_FFI_API_MINOR 3\n" in header.read_text():
            return folder
    return None


def compile_in_two(folder: Path, options: list[str], sources: list[Path]) -> list[Path]:
    """Two compilers at once, each with half of the files."""
    objects = [folder / f"{i}.o" for i in range(2)]
    compilers = [
        subprocess.Popen(
            [*COMPILE, *options, "-r", "-nostdlib", *sources[i::2], "-o", objects[i]],
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    for compiler in compilers:
        _, errors = compiler.communicate(timeout=250)
        assert compiler.returncode == 0, errors
    return objects


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ctypes.CDLL]:
    """The executor on the fake device; it finds this library itself where it looks for NCCL."""
    folder = tmp_path_factory.mktemp("gpu")
    ours = [FAKE / f"{name}.cc" for name in ("device", "harness", "nccl")]
    headers = xla_headers()
    xla = [] if headers is None else XLA_SOURCES
    options = [] if headers is None else ["-isystem", str(headers)]
    objects = compile_in_two(folder, options, [*xla, *SOURCES, *ours])
    library = folder / "libfake_gpu.so"
    subprocess.run([*COMPILE, "-shared", *objects, "-ldl", "-lpthread", "-o", library], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PCCL_NCCL_LIBRARY", str(library))
        patch.delenv("PCCL_GPU_TRANSPORT", raising=False)
        yield ctypes.CDLL(str(library))


@pytest.fixture
def knobs(fake: ctypes.CDLL) -> Iterator[Knobs]:
    knobs = Knobs(fake)
    yield knobs
    knobs.reset()


@pytest.fixture(scope="session")
def handlers(fake: ctypes.CDLL) -> ctypes.CDLL:
    """The same, with the handlers."""
    if not hasattr(fake, "fake_program"):
        pytest.skip("NOT COMPILED: the FFI handlers need the headers of jaxlib 0.10.2")
    return fake
