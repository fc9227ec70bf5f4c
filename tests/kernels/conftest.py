"""The kernels compiled as the extension compiles them, and once more under sanitizers."""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIM = Path(__file__).with_name("shim.cc")
KERNELS = [ROOT / "kernels" / "reduce.cc", ROOT / "kernels" / "copy.cc"]
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror"]
GPU = ROOT / "kernels" / "gpu"
GPU_OPTIONS = ["-fno-strict-aliasing", "-Wno-unknown-pragmas"]
SANITIZE = ["-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
COMMON = ["g++", "-std=c++17", "-ffp-contract=off", "-fno-trapping-math", *WARNINGS, f"-I{ROOT}"]


Build = tuple["subprocess.Popen[str]", Path]


def start(output: Path, *args: str | Path) -> Build:
    """A compiler at work, and what it makes."""
    command = [*COMMON, *map(str, args), "-o", str(output)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True), output


def finish(build: Build) -> Path:
    process, output = build
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, f"g++ could not build the kernels:\n{errors}"
    return output


@contextlib.contextmanager
def started(*builds: Build) -> Iterator[tuple[Build, ...]]:
    """At once: the compiler takes most of this folder's time. None goes on after the tests."""
    try:
        yield builds
    finally:
        for process, _ in builds:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Build, ...]]:
    """The library, and the program with sanitizers."""
    out = tmp_path_factory.mktemp("kernels")
    sources = [SHIM, *KERNELS]
    with started(
        start(out / "libkernels.so", "-O3", "-fPIC", "-shared", *sources),
        start(out / "sanitized", *SANITIZE, SHIM.with_name("sanitize.cc"), *sources),
    ) as both:
        yield both


@pytest.fixture(scope="session")
def lib(builds: tuple[Build, ...]) -> ctypes.CDLL:
    path = finish(builds[0])
    library = ctypes.CDLL(str(path))
    size, pointer, flag = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
    library.item_size.restype = size
    library.reduce.argtypes = [flag, flag, flag, pointer, pointer, flag, size]
    library.reduce_broadcast.argtypes = [flag, flag, pointer, flag, pointer, flag, size, flag]
    library.copy.argtypes = [pointer, pointer, size, flag]
    library.copy_2d.argtypes = [pointer, size, pointer, size, size, size, flag]
    library.copy_to_many.argtypes = [pointer, flag, pointer, size, flag]
    library.prepare_output.argtypes = [pointer, size]
    return library


@pytest.fixture(scope="session")
def sanitized(builds: tuple[Build, ...]) -> Path:
    return finish(builds[1])


@pytest.fixture(scope="session")
def gpu_builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Build, ...]]:
    """The GPU kernels for the CPU, quickly compiled: all of them, and most with sanitizers."""
    out = tmp_path_factory.mktemp("gpu")
    sources = ["-x", "c++", GPU / "kernels.cu", SHIM.with_name("gpu_codecs.cc")]
    main = SHIM.with_name("gpu_sanitize.cc")
    with started(
        start(out / "libgpu.so", *GPU_OPTIONS, "-O0", "-fPIC", "-shared", *sources),
        start(out / "sanitized", *GPU_OPTIONS, *SANITIZE, main),
    ) as both:
        yield both


@pytest.fixture(scope="session")
def gpu(gpu_builds: tuple[Build, ...]) -> ctypes.CDLL:
    path = finish(gpu_builds[0])
    library = ctypes.CDLL(str(path))
    size, pointer, code, wide = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    library.pccl_gpu_reduce.argtypes = [code, code, pointer, pointer, code, size, pointer]
    library.pccl_gpu_permute.argtypes = [pointer, pointer, wide, wide, size, pointer]
    library.pccl_gpu_permute_reduce.argtypes = [
        *[code, code, pointer, pointer, code],
        *[wide, wide, size, pointer],
    ]
    return library


@pytest.fixture(scope="session")
def gpu_sanitized(gpu_builds: tuple[Build, ...]) -> Path:
    return finish(gpu_builds[1])
