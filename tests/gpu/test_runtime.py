"""The one file that calls the GPU runtime, compiled against its headers. Skipped without."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import COMPILE, FAKE, ROOT


def cuda_headers() -> Path:
    """As nvcc itself finds them."""
    nvcc = shutil.which("nvcc")
    if nvcc is not None:
        command = [nvcc, "--dryrun", "-c", "-x", "cu", os.devnull, "-o", os.devnull]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        tops = [line.split("TOP=")[1] for line in said.stderr.splitlines() if "TOP=" in line]
        for folder in (Path(top.strip()) / "include" for top in tops):
            if (folder / "cuda_runtime_api.h").exists():
                return folder
    if os.environ.get("PCCL_TEST_GPU_COMPILERS"):
        pytest.fail("PCCL_TEST_GPU_COMPILERS is set, and there is no nvcc with its headers")
    pytest.skip("GPU RUNTIME NOT COMPILED: there is no nvcc with its headers")


def test_cuda_runtime(tmp_path: Path) -> None:
    source, output = ROOT / "ffi" / "gpu" / "runtime.cc", tmp_path / "runtime.o"
    command = [*COMPILE, "-isystem", cuda_headers(), "-c", source, "-o", output]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    symbols = subprocess.run(["nm", "-uC", output], capture_output=True, text=True, check=True)
    called = {line.split()[-1] for line in symbols.stdout.splitlines()}
    assert {"cudaMemcpyAsync", "cudaStreamWaitEvent", "cudaHostAlloc"} <= called
    assert not [name for name in called if name.startswith("cu") and not name.startswith("cuda")]


def test_errors_are_not_left_for_the_next_kernel_to_find(tmp_path: Path) -> None:
    """Launches ask for the last error; that an event has not passed is one as well."""
    sources = (ROOT / "ffi" / "gpu" / "runtime.cc", FAKE / "cuda_runtime.cc")
    used = ["-ffunction-sections", "-Wl,--gc-sections"]  # the rest is not there
    program = tmp_path / "program"
    subprocess.run(
        [*COMPILE, "-isystem", cuda_headers(), *sources, *used, "-o", program],
        check=True,
        timeout=120,
    )
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "GPU runtime: choice of the device: the error\n")
