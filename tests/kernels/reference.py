"""What the kernels are compared with: folds in numpy, and inputs that reach the corners."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from pccl_jax.types import Op

HALVES = ("float16", "bfloat16")
EIGHTHS = ("float8_e4m3fn", "float8_e5m2")
NARROW = HALVES + EIGHTHS


def bits(x: np.ndarray) -> np.ndarray:
    return x.view(np.uint8)


def pointers(arrays: Sequence[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])


def sample(name: str, count: int, seed: int) -> np.ndarray:
    """Values of every kind: for floats 2 % are zeros, subnormals, infinities and NaN."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(name)
    if name == "bool":
        return rng.integers(0, 2, count).astype(bool)
    if dtype.kind in "iu":
        return rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8).view(dtype)
    if dtype.kind == "c":
        return sample(f"float{dtype.itemsize * 4}", 2 * count, seed).view(dtype)
    x = rng.standard_normal(count).astype(dtype)
    info = ml_dtypes.finfo(dtype)
    tiny = float(info.smallest_subnormal)
    special = [0.0, -0.0, tiny, -3 * tiny, np.inf, -np.inf, np.nan, -np.nan, float(info.max)]
    where = rng.random(count) < 0.02
    x[where] = rng.choice(np.array(special, dtype=dtype), int(where.sum()))
    return x


def combine(op: Op, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype == bool:
        return a | b if op in (Op.SUM, Op.MAX) else a & b
    if op is Op.SUM:
        return a + b
    if op is Op.PROD:
        if a.dtype.kind != "c":
            return a * b
        result = np.empty_like(a)  # the plain formula: numpy may contract it
        result.real = a.real * b.real - a.imag * b.imag
        result.imag = a.real * b.imag + a.imag * b.real
        return result
    if a.dtype.kind in "iu":
        return np.maximum(a, b) if op is Op.MAX else np.minimum(a, b)
    ordered = np.maximum(a, b) if op is Op.MAX else np.minimum(a, b)
    prefer_b = np.signbit(a) if op is Op.MAX else ~np.signbit(a)
    return np.where(a == b, np.where(prefer_b, b, a), ordered)


def fold(op: Op, srcs: Sequence[np.ndarray]) -> np.ndarray:
    """The left fold in index order, in float32 for the narrow types."""
    dtype = srcs[0].dtype
    wide = np.dtype(np.float32) if dtype.name in NARROW else dtype
    with np.errstate(all="ignore"):
        total = functools.reduce(functools.partial(combine, op), [s.astype(wide) for s in srcs])
        return total.astype(dtype)


def assert_same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal bits, signs of zeros included, but any NaN for a NaN."""
    if got.dtype.kind == "c":
        part = np.dtype(f"float{got.dtype.itemsize * 4}")
        got, want = got.view(part), want.view(part)
    if got.dtype.kind not in "biu":
        with np.errstate(invalid="ignore"):  # signalling NaN
            nan = np.isnan(want)
            np.testing.assert_array_equal(np.isnan(got), nan)
        got, want = got[~nan], want[~nan]
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(bits(got), bits(want))


def misaligned(x: np.ndarray, nbytes: int) -> np.ndarray:
    """A copy of ``x`` that starts ``nbytes`` after an aligned address."""
    memory = np.empty(x.nbytes + 64 + nbytes, np.uint8)
    start = -memory.ctypes.data % 64 + nbytes
    copy = memory[start : start + x.nbytes].view(x.dtype)
    copy[...] = x
    return copy
