"""The check for machines with a GPU, as far as it goes without one."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import subprocess
import sys
import time
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from .conftest import ROOT

TOOL = ROOT / "tools" / "gpu_check.py"


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "kernels"))
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    names = ("kernels", "module", "programs")
    yield SimpleNamespace(**{n: importlib.import_module(f"gpu_check_parts.{n}") for n in names})
    for name in [n for n in sys.modules if n.split(".")[0] == "gpu_check_parts"]:
        del sys.modules[name]


class FakeGpu:
    """The fake device, in place of the module for GPUs; ``spoil`` changes what it was asked for."""

    def __init__(self, fake: ctypes.CDLL, spoil: int = 0) -> None:
        fake.fake_stream.restype = ctypes.c_void_p
        self._fake, self._spoil = fake, spoil
        self._stream = ctypes.c_void_p(fake.fake_stream())
        self.module = self

    def reduce(self, dtype: int, op: int, dst: int, sources: list[int], count: int) -> int:
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        srcs = (pointer * len(sources))(*sources)
        args = (pointer(dst), srcs, len(sources), size(count - self._spoil), self._stream)
        return int(self._fake.pccl_gpu_reduce(dtype, op, *args))

    def permute(self, dst: int, src: int, rows: int, cols: int, block_nbytes: int) -> int:
        pointer, size, wide = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64
        args = (pointer(dst), pointer(src), wide(rows), wide(cols), size(block_nbytes))
        return int(self._fake.pccl_gpu_permute(*args, self._stream))

    def copy(self, dst: int, src: int, nbytes: int) -> None:
        self.permute(dst, src, 1, 1, nbytes)

    def synchronize(self) -> None:
        self._fake.fake_drain(self._stream)

    def upload(self, x: np.ndarray) -> np.ndarray:
        return x.copy()

    def download(self, x: np.ndarray) -> np.ndarray:
        self.synchronize()
        return x

    def address(self, x: np.ndarray) -> int:
        return int(x.ctypes.data)


def test_results_of_kernels(fake: ctypes.CDLL, parts: SimpleNamespace) -> None:
    """The fake device has no 8-bit floats, which is told."""
    rows = list(parts.kernels.check(FakeGpu(fake), ["bool", "bfloat16", "float8_e5m2"]))
    assert len(rows) == 4
    assert [name for name, state, _ in rows if state != "ok"] == ["reduce float8_e5m2"]


def test_wrong_results_of_kernels_are_told(fake: ctypes.CDLL, parts: SimpleNamespace) -> None:
    checked = parts.kernels.check(FakeGpu(fake, spoil=1), ["int32", "complex64"])
    rows = {name: state for name, state, _ in checked}
    assert rows.pop("permute") == "ok"
    assert set(rows.values()) == {"FAILED"}


def test_bandwidth_is_told_beside_a_copy(fake: ctypes.CDLL, parts: SimpleNamespace) -> None:
    rows = list(parts.kernels.measure(FakeGpu(fake), sizes=(1,), repeats=1))
    assert [name for name, _, _ in rows] == [
        "copy 1 MiB",
        *(f"sum of {k} {t} 1 MiB" for t in ("float32", "bfloat16") for k in (2, 8)),
    ]
    assert all("of a copy" in detail for _, _, detail in rows[1:])


def test_every_algorithm_against_numpy(parts: SimpleNamespace) -> None:
    rows = list(parts.programs.every_algorithm(jax.devices()[:2], (3,), ("bfloat16",)))
    assert len(rows) >= 13
    assert [row for row in rows if row[1] != "ok"] == []


def test_algorithms_that_were_not_run_are_told(
    parts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lax_psum(x: Any, axis: str, algorithm: str) -> Any:
        return jax.lax.psum(x, axis)

    monkeypatch.setattr(parts.programs.pccl_jax, "psum", lax_psum)
    rows = list(parts.programs.every_algorithm(jax.devices()[:2], (3,), ("int32",)))
    failed = {name.split()[0] for name, state, _ in rows if state != "ok"}
    assert failed == {"all_reduce"}


@pytest.mark.parametrize("platform", ["cuda", "rocm"])
def test_module_of_the_platform(
    platform: str, parts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = SimpleNamespace(client=SimpleNamespace(platform=platform))
    monkeypatch.setattr(parts.module.jax, "devices", lambda kind: [gpu])
    module = ModuleType(f"pccl_jax._pccl_{platform}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert parts.module.gpu_platform() == platform
    assert parts.module.gpu_module() is module


def test_without_a_gpu() -> None:
    done = subprocess.run(
        [sys.executable, TOOL, "--only", "kernels"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "PATH": ""},
    )
    assert done.returncode == 1
    assert "FAILED  no GPU" in done.stdout


@pytest.fixture
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("gpu_check", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HANGS = """
import subprocess
print("ROW", "before", "ok", "1 case", sep="\\t", flush=True)
subprocess.run(["sleep", "60"])
"""


def test_a_part_that_hangs_is_ended_with_all_its_processes(
    tool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sleep holds the pipe: were it left, so would be the wait for the end of the output."""
    monkeypatch.setattr(tool, "LIMIT_S", 1)
    monkeypatch.setattr(tool, "command", lambda part: [sys.executable, "-c", HANGS])
    begin = time.monotonic()
    rows = list(tool.results_of("mpi"))
    assert time.monotonic() - begin < 30
    assert [row[:2] for row in rows] == [("before", "ok"), ("mpi", "FAILED")]
    assert "not done after 1 s" in rows[1][2]


def test_without_mpiexec(tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "command", lambda part: ["/no/such/mpiexec"])
    ((_, state, detail),) = tool.results_of("mpi")
    assert state == "FAILED"
    assert "pip install 'pccl_jax[mpich]'" in detail


def test_ranks_without_a_gpu_are_told(
    parts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise they would check the CPU path, and say that all is well."""
    monkeypatch.setattr(parts.programs.pccl_jax, "init", lambda **options: None)
    ((_, state, detail),) = parts.programs.many_ranks()
    assert state == "FAILED"
    assert "expected a GPU in each process" in detail
