"""What nvcc and hipcc make of the GPU kernels that move most bytes. Skipped where they are not."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, SHIM

HOT = SHIM.with_name("gpu_hot.cu")
NUM_HOT = HOT.read_text(encoding="utf-8").count("template int")
ARCH = "sm_90"


def tool(name: str) -> str | None:
    """A compiler or disassembler on the PATH, or from NVIDIA's packages for Python."""
    found = shutil.which(name)
    nvidia = importlib.util.find_spec("nvidia")
    for folder in (nvidia.submodule_search_locations or [] if nvidia else []) if not found else []:
        found = next((str(p) for p in Path(folder).glob(f"cu*/bin/{name}")), found)
    return found


def needs(name: str) -> str:
    path = tool(name)
    if path is None:
        if os.environ.get("PCCL_TEST_GPU_COMPILERS"):
            pytest.fail(f"PCCL_TEST_GPU_COMPILERS is set, and there is no {name}")
        pytest.skip(f"GPU CODE NOT COMPILED: there is no {name}")
    return path


def run(*args: str | Path) -> str:
    done = subprocess.run(
        [str(a) for a in args],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=os.environ | {"HIP_PLATFORM": "amd"},  # hipcc takes NVIDIA's where it sees nvcc
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def nvcc(*args: str | Path) -> str:
    common = ["-std=c++17", "-O3", f"-arch={ARCH}", "-fmad=false", "--expt-relaxed-constexpr"]
    return run(needs("nvcc"), *common, f"-I{ROOT}", HOT, *args)


@pytest.fixture(scope="module")
def cubin(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The compiled kernels, and what the assembler says of them."""
    path = tmp_path_factory.mktemp("cuda") / "hot.cubin"
    return path, nvcc("-Xptxas", "-v", "-cubin", "-o", path)


def test_hot_kernels_keep_everything_in_registers(cubin: tuple[Path, str]) -> None:
    found = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+)", cubin[1])
    assert found == [("0", "0", "0")] * NUM_HOT


def test_hot_kernels_leave_room_for_two_thread_blocks(cubin: tuple[Path, str]) -> None:
    """65536 registers of a multiprocessor, 256 threads in a block."""
    registers = [int(n) for n in re.findall(r"Used (\d+) registers", cubin[1])]
    assert len(registers) == NUM_HOT
    assert max(registers) <= 65536 // (2 * 256)


def shape_of(kernel: str) -> tuple[int, int]:
    """How many sources a kernel has, and how many vectors of each it reads before it writes."""
    sources = int(re.search(r"Li(\d)EEEvPc", kernel).group(1))
    return sources, {1: 4, 2: 4, 8: 1}[sources]


def test_hot_kernels_access_16_bytes_at_a_time(cubin: tuple[Path, str]) -> None:
    listing = run(needs("cuobjdump"), "-sass", cubin[0])
    kernels = listing.split("Function : ")[1:]
    assert len(kernels) == NUM_HOT
    for kernel in kernels:
        name = kernel.split("\n", 1)[0]
        sources, batch = shape_of(name)
        assert len(re.findall(r"\bLDG\.E\.128\b", kernel)) >= batch * sources, name
        assert len(re.findall(r"\bSTG\.E\.128\b", kernel)) >= batch, name
        assert "LDG.E.128.CONSTANT" not in kernel, f"{name} reads past what it writes in place"


def test_ptx_has_vector_accesses(tmp_path: Path) -> None:
    """Where there is nothing to disassemble with."""
    nvcc("-ptx", "-o", tmp_path / "hot.ptx")
    text = (tmp_path / "hot.ptx").read_text(encoding="utf-8")
    assert len(re.findall(r"ld\.global\.v[24]\.\w+", text)) >= 4 * NUM_HOT
    assert "ld.global.nc" not in text


def test_hot_kernels_of_hipcc(tmp_path: Path) -> None:
    """The same of AMD's assembly: nothing in memory of the thread's own, vectors of 16 bytes."""
    options = ["-x", "hip", "--offload-arch=gfx90a", "--cuda-device-only", "-std=c++17", "-O3"]
    options += ["-ffp-contract=off", f"-I{ROOT}", "-S"]
    run(needs("hipcc"), *options, HOT, "-o", tmp_path / "hot.s")
    text = (tmp_path / "hot.s").read_text(encoding="utf-8")
    kept = re.findall(r"\.(?:private_segment_fixed_size|[sv]gpr_spill_count): +(\d+)", text)
    assert kept == ["0"] * 3 * NUM_HOT
    kernels = re.findall(r"; -- Begin function (\S+)\n(.*?); -- End function", text, re.DOTALL)
    assert len(kernels) == NUM_HOT
    for name, code in kernels:
        sources, batch = shape_of(name)
        assert code.count("global_load_dwordx4") >= batch * sources, name
        assert code.count("global_store_dwordx4") >= batch, name
