"""The one file that calls a GPU runtime, compiled against the headers of each. Skipped without."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import COMPILE, FAKE, ROOT


def cuda_headers(nvcc: str) -> Path:
    """As nvcc itself finds them."""
    command = [nvcc, "--dryrun", "-c", "-x", "cu", os.devnull, "-o", os.devnull]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    tops = [line.split("TOP=")[1] for line in said.stderr.splitlines() if "TOP=" in line]
    return Path(tops[0].strip()) / "include"


def hip_headers(hipcc: str) -> Path:
    return Path(hipcc).resolve().parents[1] / "include"


RUNTIMES = {
    "cuda": ("nvcc", cuda_headers, "cuda_runtime_api.h", []),
    "hip": ("hipcc", hip_headers, "hip/hip_runtime_api.h", ["-D__HIP_PLATFORM_AMD__"]),
}


def options_for(name: str) -> list[str]:
    """What g++ needs to compile for a runtime."""
    compiler, headers, header, options = RUNTIMES[name]
    found = shutil.which(compiler)
    folder = Path(os.devnull) if found is None else headers(found)
    if (folder / header).exists():
        # The compiler's own folder must keep its place.
        own = folder == Path("/usr/include")
        return options if own else [*options, "-isystem", str(folder)]
    if os.environ.get("PCCL_TEST_GPU_COMPILERS"):
        pytest.fail(f"PCCL_TEST_GPU_COMPILERS is set, and there is no {compiler} with its headers")
    pytest.skip(f"GPU RUNTIME NOT COMPILED: there is no {compiler} with its headers")


@pytest.mark.parametrize("name", RUNTIMES)
def test_runtime(name: str, tmp_path: Path) -> None:
    source, output = ROOT / "ffi" / "gpu" / "runtime.cc", tmp_path / "runtime.o"
    command = [*COMPILE, *options_for(name), "-c", source, "-o", output]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    symbols = subprocess.run(["nm", "-uC", output], capture_output=True, text=True, check=True)
    called = {line.split()[-1] for line in symbols.stdout.splitlines()}
    host_memory = {"cuda": "cudaHostAlloc", "hip": "hipHostMalloc"}[name]
    assert {f"{name}MemcpyAsync", f"{name}StreamWaitEvent", host_memory} <= called
    gpu = [symbol for symbol in called if symbol.startswith(("cu", "hip", "hsa"))]
    assert not [symbol for symbol in gpu if not symbol.startswith(name)]


def test_errors_are_not_left_for_the_next_kernel_to_find(tmp_path: Path) -> None:
    """Launches ask for the last error; that an event has not passed is one as well."""
    sources = (ROOT / "ffi" / "gpu" / "runtime.cc", FAKE / "cuda_runtime.cc")
    used = ["-ffunction-sections", "-Wl,--gc-sections"]  # the rest is not there
    program = tmp_path / "program"
    subprocess.run(
        [*COMPILE, *options_for("cuda"), *sources, *used, "-o", program],
        check=True,
        timeout=120,
    )
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "GPU runtime: choice of the device: the error\n")
