"""The GPU executor, compiled for a device that only pretends to be one."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAKE = Path(__file__).parent / "fake"
#: What of the executor needs no GPU runtime, and what it shares with the CPU's.
SOURCES = [
    *(ROOT / "ffi" / "gpu" / f"{name}.cc" for name in ("communicator", "execution", "plan")),
    *(ROOT / "ffi" / "gpu" / f"{name}.cc" for name in ("mpi_communicator", "nccl_communicator")),
    ROOT / "ffi" / "gpu" / "nccl_library.cc",
    ROOT / "ffi" / "schedule.cc",
    ROOT / "kernels" / "copy.cc",
    ROOT / "kernels" / "reduce.cc",
]
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror"]
OPTIONS = ["-std=c++17", "-O0", "-fPIC", "-ffp-contract=off", "-fno-trapping-math"]
COMPILE = ["g++", *OPTIONS, *WARNINGS, f"-I{ROOT}"]


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ctypes.CDLL]:
    """The executor on the fake device; it finds this library itself where it looks for NCCL."""
    folder = tmp_path_factory.mktemp("gpu")
    sources = [*SOURCES, *sorted(FAKE.glob("*.cc"))]
    objects = [folder / f"{i}.o" for i in range(2)]
    # Two compilers at once, each with half of the files.
    compilers = [
        subprocess.Popen(
            [*COMPILE, "-r", "-nostdlib", *sources[i::2], "-o", objects[i]],
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    for compiler in compilers:
        _, errors = compiler.communicate(timeout=250)
        assert compiler.returncode == 0, errors
    library = folder / "libfake_gpu.so"
    subprocess.run([*COMPILE, "-shared", *objects, "-ldl", "-lpthread", "-o", library], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PCCL_NCCL_LIBRARY", str(library))
        yield ctypes.CDLL(str(library))
