"""Whether the modules for GPUs are built: what PCCL_CUDA and PCCL_ROCM mean."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT

SCRIPT = """
include("{root}/cmake/gpu.cmake")
set(PCCL_CUDA {value})
pccl_check_option(PCCL_CUDA)
pccl_builds_gpu_module(built PCCL_CUDA _pccl_cuda nvcc "{found}" 12.8 "Install the toolkit")
message(STATUS "built=${{built}}")
"""


def decide(folder: Path, value: str, found: str) -> tuple[int, str]:
    """CMake's exit status and what it says, in one line."""
    beside_python = Path(sys.executable).with_name("cmake")
    cmake = str(beside_python) if beside_python.exists() else shutil.which("cmake")
    if cmake is None:
        pytest.skip("there is no cmake")
    script = folder / "decide.cmake"
    script.write_text(SCRIPT.format(root=ROOT, value=value, found=found), encoding="utf-8")
    done = subprocess.run([cmake, "-P", script], capture_output=True, text=True, timeout=60)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    ("value", "found", "built", "says"),
    [
        ("AUTO", "12.8", True, ""),
        ("AUTO", "13.0", True, ""),
        ("AUTO", "12.0", False, "got nvcc 12.0, expected 12.8 or later, so no pccl_jax._pccl_cuda"),
        ("AUTO", "", False, "got no nvcc that works, expected 12.8 or later"),
        ("ON", "12.0", True, ""),
    ],
)
def test_whether_it_is_built(
    value: str, found: str, built: bool, says: str, tmp_path: Path
) -> None:
    status, said = decide(tmp_path, value, found)
    assert status == 0
    assert said.endswith(f"built={'ON' if built else 'OFF'}")
    assert says in said
    assert ("Install the toolkit" in said) == (not built)


def test_a_build_that_asks_for_it_ends_where_there_is_no_compiler(tmp_path: Path) -> None:
    status, said = decide(tmp_path, "ON", "")
    assert status != 0
    assert "PCCL_CUDA=ON: got no nvcc that works, expected nvcc 12.8 or later." in said
    assert "Install the toolkit, or build with PCCL_CUDA=OFF." in said


def test_another_value_is_refused(tmp_path: Path) -> None:
    status, said = decide(tmp_path, "YES", "13.0")
    assert status != 0
    assert "PCCL_CUDA=YES: use ON, OFF or AUTO." in said
