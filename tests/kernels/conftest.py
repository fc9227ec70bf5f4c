"""The kernels compiled as the extension compiles them, and once more under sanitizers."""

from __future__ import annotations

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


def start(*args: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen([*COMMON, *map(str, args)], stderr=subprocess.PIPE, text=True)


def finish(build: subprocess.Popen[str]) -> None:
    _, errors = build.communicate(timeout=300)
    assert build.returncode == 0, f"g++ could not build the kernels:\n{errors}"


def end(*builds: subprocess.Popen[str]) -> None:
    for build in builds:
        if build.poll() is None:
            build.kill()
        build.communicate()


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """Both builds at once: the optimiser takes most of this folder's time."""
    out = tmp_path_factory.mktemp("kernels")
    library, program = out / "libkernels.so", out / "sanitized"
    optimized = start("-O3", "-fPIC", "-shared", SHIM, *KERNELS, "-o", library)
    main = SHIM.with_name("sanitize.cc")
    sanitized = start(*SANITIZE, main, SHIM, *KERNELS, "-o", program)
    yield {"library": (optimized, library), "program": (sanitized, program)}
    end(optimized, sanitized)


@pytest.fixture(scope="session")
def lib(builds: dict[str, tuple[subprocess.Popen[str], Path]]) -> ctypes.CDLL:
    build, path = builds["library"]
    finish(build)
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
def sanitized(builds: dict[str, tuple[subprocess.Popen[str], Path]]) -> Path:
    build, path = builds["program"]
    finish(build)
    return path


@pytest.fixture(scope="session")
def gpu_builds(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, tuple[subprocess.Popen[str], Path]]]:
    """The GPU kernels for the CPU, quickly compiled: all of them, and most with sanitizers."""
    out = tmp_path_factory.mktemp("gpu")
    library, program = out / "libgpu.so", out / "sanitized"
    sources = ["-x", "c++", GPU / "kernels.cu", SHIM.with_name("gpu_codecs.cc")]
    plain = start(*GPU_OPTIONS, "-O0", "-fPIC", "-shared", *sources, "-o", library)
    main = SHIM.with_name("gpu_sanitize.cc")
    sanitized = start(*GPU_OPTIONS, *SANITIZE, main, "-o", program)
    yield {"library": (plain, library), "program": (sanitized, program)}
    end(plain, sanitized)


@pytest.fixture(scope="session")
def gpu(gpu_builds: dict[str, tuple[subprocess.Popen[str], Path]]) -> ctypes.CDLL:
    build, path = gpu_builds["library"]
    finish(build)
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
def gpu_sanitized(gpu_builds: dict[str, tuple[subprocess.Popen[str], Path]]) -> Path:
    build, path = gpu_builds["program"]
    finish(build)
    return path
