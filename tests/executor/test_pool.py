"""The threads that collectives run on: few while they work, more only while they block."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_pool(tmp_path: Path) -> None:
    program = tmp_path / "pool"
    sources = [Path(__file__).with_name("pool.cc"), ROOT / "ffi" / "pool.cc"]
    options = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{ROOT}"]
    command = ["g++", *options, *map(str, sources), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([program], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
