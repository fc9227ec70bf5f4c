"""The kernels alone, on the device: results, and how fast they are."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol

import ml_dtypes
import numpy as np
from reference import assert_same, fold, sample

from pccl_jax.types import GPU_REDUCE_DTYPES, Op

Row = tuple[str, str, str]

#: Of what a copy on the device reaches.
TARGET = 0.9
MIB = 1 << 20


class Device(Protocol):
    """Where kernels run: the module's functions, and arrays in the device's memory."""

    module: Any

    def upload(self, x: np.ndarray) -> Any: ...
    def download(self, x: Any) -> np.ndarray: ...
    def address(self, x: Any) -> int: ...


class Gpu:
    """The first GPU of this process."""

    def __init__(self) -> None:
        import jax

        from gpu_check_parts.module import gpu_module

        self.module, self._jax = gpu_module(), jax
        self._device = jax.devices("gpu")[0]

    def upload(self, x: np.ndarray) -> Any:
        return self._jax.device_put(x, self._device).block_until_ready()

    def download(self, x: Any) -> np.ndarray:
        self.module.synchronize()
        return np.asarray(x)

    def address(self, x: Any) -> int:
        return int(x.unsafe_buffer_pointer())


def check(
    device: Device | None = None, names: Iterable[str] = tuple(GPU_REDUCE_DTYPES)
) -> Iterator[Row]:
    """Every type and operator, k = 2, 3 and 8, bit for bit; permutations."""
    device = device or Gpu()
    for name in names:
        operators = [op for op in Op if op <= Op.PROD or not name.startswith("complex")]
        yield _row(f"reduce {name}", lambda n=name, ops=operators: _reductions(device, n, ops))
    yield _row("permute", lambda: _permutations(device))


def _row(name: str, action: Callable[[], int]) -> Row:
    try:
        return name, "ok", f"{action()} cases"
    except AssertionError as e:
        return name, "FAILED", " ".join(str(e).split())[:200]


def _reductions(device: Device, name: str, operators: list[Op]) -> int:
    cases = 0
    for op, k, count in itertools.product(operators, (2, 3, 8), (1, 37, 4099, 100_003)):
        inputs = [sample(name, count, seed=j) for j in range(k)]
        arrays = [device.upload(x) for x in inputs]
        dst = device.upload(np.zeros(count, name))
        addresses = [device.address(x) for x in arrays]
        code = device.module.reduce(
            GPU_REDUCE_DTYPES[name], int(op), device.address(dst), addresses, count
        )
        assert code == 0, f"{op.name} of {k}: code {code}"
        assert_same(device.download(dst), fold(op, inputs))
        cases += 1
    return cases


def _permutations(device: Device) -> int:
    cases = 0
    for rows, cols, nbytes in itertools.product((1, 2, 8), (3, 16), (1, 12, 64, 4099, 65536)):
        x = np.random.default_rng(nbytes).integers(0, 256, rows * cols * nbytes, dtype=np.uint8)
        src, dst = device.upload(x), device.upload(np.zeros_like(x))
        code = device.module.permute(device.address(dst), device.address(src), rows, cols, nbytes)
        assert code == 0, f"permutation: code {code}"
        want = x.reshape(rows, cols, nbytes).swapaxes(0, 1).ravel()
        np.testing.assert_array_equal(device.download(dst), want)
        cases += 1
    return cases


def measure(
    device: Device | None = None, sizes: tuple[int, ...] = (64, 128, 256), repeats: int = 20
) -> Iterator[Row]:
    """GB/s of sums of f32 and bf16, k = 2 and 8, beside a copy of as many bytes; sizes in MiB."""
    device = device or Gpu()
    module = device.module
    for mib in sizes:
        nbytes = mib * MIB
        arrays = [device.upload(np.full(nbytes // 4, j, np.float32)) for j in range(9)]
        dst, *sources = (device.address(x) for x in arrays)
        copy = partial(module.copy, dst, sources[0], nbytes)
        copied = 2 * nbytes / _seconds(module, copy, repeats)
        yield f"copy {mib} MiB", "ok", f"{copied / 1e9:.0f} GB/s"
        for dtype, k in itertools.product((np.float32, ml_dtypes.bfloat16), (2, 8)):
            kind = np.dtype(dtype)
            count, code = nbytes // kind.itemsize, GPU_REDUCE_DTYPES[kind.name]
            reduce = partial(module.reduce, code, 0, dst, sources[:k], count)
            rate = (k + 1) * nbytes / _seconds(module, reduce, repeats)
            state = "ok" if rate >= TARGET * copied else "SLOW"
            detail = f"{rate / 1e9:.0f} GB/s, {rate / copied:.0%} of a copy"
            yield f"sum of {k} {kind.name} {mib} MiB", state, detail


def _seconds(module: Any, enqueue: Callable[[], object], repeats: int) -> float:
    """Of one call, the best of five series."""
    enqueue()
    module.synchronize()
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(repeats):
            enqueue()
        module.synchronize()
        best = min(best, (time.perf_counter() - begin) / repeats)
    return best
