"""What the GPU kernel does at the ends of a vector, and that each part of it is tested."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import GPU, GPU_OPTIONS, ROOT, SANITIZE, SHIM, finish, start

#: A line of the kernel, and a slip in it.
MUTATIONS = {
    "head not counted": ("(count - head) / Items<Wire>::kCount", "count / Items<Wire>::kCount"),
    "head beyond the end": ("nbytes / sizeof(Wire) > count ? count", "false ? count"),
    "sources misaligned": ("(reinterpret_cast<uintptr_t>(from.src[j]) ^ to)", "uintptr_t{0}"),
    "tail one short": ("skip, count - skip);\n  } else", "skip, count - skip - 1);\n  } else"),
    "tail one long": ("e < num; e += step", "e <= num; e += step"),
    "unaligned items": ("all % alignof(Wire) == 0", "true"),
    "full tile beyond the end": ("begin + tile <= num_vectors", "true"),
    "blocks not transposed": ("b % blocks.rows * blocks.cols + b / blocks.rows", "b"),
    "vectors twice": ("begin += gridDim.x * tile", "begin += tile"),
    "items twice": ("size_t{gridDim.x} * blockDim.x;", "size_t{blockDim.x};"),
    "blocks twice": ("int64_t{gridDim.y} * blockDim.y;", "int64_t{blockDim.y};"),
    "misaligned result": (
        "uintptr_t all = reinterpret_cast<uintptr_t>(dst);",
        "uintptr_t all = 0;",
    ),
    "grid of nothing": ("(work + x - 1) / x", "work / x"),
    "launch of nothing": (" || blocks.count == 0) return", ") return"),
    "last block left out": ("b < num_blocks; b += step", "b + 1 < num_blocks; b += step"),
}


def build(program: Path, *options: str) -> Path:
    source = SHIM.with_name("gpu_tails.cc")
    return finish(start(program, *options, *GPU_OPTIONS, *SANITIZE, source))


def run(program: Path) -> tuple[int, str]:
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


def test_every_end_is_right(tmp_path: Path) -> None:
    assert run(build(tmp_path / "tails")) == (0, "right\n")


@pytest.mark.parametrize("slip", MUTATIONS)
def test_a_slip_is_noticed(tmp_path: Path, slip: str) -> None:
    """A wrong byte, or a sanitizer that stops the program."""
    shutil.copytree(ROOT / "kernels", tmp_path / "kernels")
    kernel = tmp_path / (GPU / "fold_kernel.h").relative_to(ROOT)
    right, wrong = MUTATIONS[slip]
    text = kernel.read_text(encoding="utf-8")
    assert text.count(right) == 1, f"the kernel has changed: where is {right!r}?"
    kernel.write_text(text.replace(right, wrong), encoding="utf-8")
    program = build(tmp_path / "mutant", f"-iquote{tmp_path}", "-w")
    assert run(program)[0] != 0
