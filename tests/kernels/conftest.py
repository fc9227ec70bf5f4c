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
COMMON = ["g++", "-std=c++17", "-ffp-contract=off", "-fno-trapping-math", *WARNINGS, f"-I{ROOT}"]


def start(*args: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen([*COMMON, *map(str, args)], stderr=subprocess.PIPE, text=True)


def finish(build: subprocess.Popen[str]) -> None:
    _, errors = build.communicate(timeout=300)
    assert build.returncode == 0, f"g++ could not build the kernels:\n{errors}"


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """Both builds at once: the optimiser takes most of this folder's time."""
    out = tmp_path_factory.mktemp("kernels")
    library, program = out / "libkernels.so", out / "sanitized"
    optimized = start("-O3", "-fPIC", "-shared", SHIM, *KERNELS, "-o", library)
    sanitize = ["-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    main = SHIM.with_name("sanitize.cc")
    sanitized = start(*sanitize, main, SHIM, *KERNELS, "-o", program)
    yield {"library": (optimized, library), "program": (sanitized, program)}
    for build in (optimized, sanitized):
        if build.poll() is None:
            build.kill()
        build.communicate()


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
