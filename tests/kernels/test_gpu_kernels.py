"""The GPU kernels, run on the CPU: every type, operator and number of sources, bit for bit."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import EIGHTHS, NARROW, assert_same, bits, fold, pointers, sample

from pccl_jax.types import GPU_REDUCE_DTYPES, Op

OK, UNSUPPORTED = 0, -1
NUM_SOURCES = range(2, 9)
GUARD = 64
UNORDERED = ("complex64", "complex128")
SUPPORTED = [
    (name, op)
    for name in GPU_REDUCE_DTYPES
    for op in Op
    if not (name in UNORDERED and op in (Op.MAX, Op.MIN))
]


class Guarded:
    """``nbytes`` that start ``shift`` after a multiple of 64, amid bytes that must not change."""

    def __init__(self, nbytes: int, shift: int) -> None:
        self.memory = np.full(nbytes + 3 * GUARD + shift, 0xA5, np.uint8)
        self.start = -self.memory.ctypes.data % GUARD + GUARD + shift
        self.stop = self.start + nbytes

    @classmethod
    def holding(cls, x: np.ndarray, shift: int) -> Guarded:
        buffer = cls(x.nbytes, shift)
        buffer.memory[buffer.start : buffer.stop] = bits(x)
        return buffer

    @property
    def address(self) -> int:
        return self.memory.ctypes.data + self.start

    def read(self, dtype: np.dtype) -> np.ndarray:
        assert (self.memory[: self.start] == 0xA5).all(), "bytes before the result were written"
        assert (self.memory[self.stop :] == 0xA5).all(), "bytes after the result were written"
        return self.memory[self.start : self.stop].copy().view(dtype)


def counts(itemsize: int) -> tuple[int, ...]:
    """None, a part of a vector, a few vectors and a rest, several tiles and a rest."""
    return 0, 1, 40 // itemsize, 272 // itemsize + 1, 16400 // itemsize + 3


def alignments(itemsize: int) -> list[tuple[int, int]]:
    """Shifts of the result and of every other source, in bytes."""
    return [(0, 0), (itemsize, itemsize), (0, itemsize), (1, 1), (3, 0)]


def address_list(srcs: Sequence[Guarded]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(srcs))(*[src.address for src in srcs])


@pytest.mark.parametrize(("name", "op"), SUPPORTED)
def test_reduce_matches_left_fold(gpu: ctypes.CDLL, name: str, op: Op) -> None:
    dtype = np.dtype(name)
    code = GPU_REDUCE_DTYPES[name]
    whole = [sample(name, max(counts(dtype.itemsize)), seed=j) for j in range(8)]
    for k, count in itertools.product(NUM_SOURCES, counts(dtype.itemsize)):
        inputs = [w[:count] for w in whole[:k]]
        want = fold(op, inputs)
        for shift, other in alignments(dtype.itemsize)[: 2 if count > 1000 else None]:
            srcs = [Guarded.holding(x, (shift, other)[j % 2]) for j, x in enumerate(inputs)]
            dst = Guarded(want.nbytes, shift)
            args = (address_list(srcs), k, count, None)
            assert gpu.pccl_gpu_reduce(code, op, dst.address, *args) == OK
            assert_same(dst.read(dtype), want)


@pytest.mark.parametrize(("name", "op"), SUPPORTED)
def test_reduce_in_place(gpu: ctypes.CDLL, name: str, op: Op) -> None:
    dtype = np.dtype(name)
    for k, count in itertools.product((2, 3, 8), (1, 37, 272)):
        inputs = [sample(name, count, seed=j) for j in range(k)]
        want = fold(op, inputs)
        for target, shift in itertools.product({0, k // 2, k - 1}, (0, dtype.itemsize)):
            srcs = [Guarded.holding(x, shift) for x in inputs]
            address = srcs[target].address
            code = GPU_REDUCE_DTYPES[name]
            assert gpu.pccl_gpu_reduce(code, op, address, address_list(srcs), k, count, None) == OK
            assert_same(srcs[target].read(dtype), want)


@pytest.mark.parametrize("op", [Op.MAX, Op.MIN])
@pytest.mark.parametrize("name", [*NARROW, "float32", "float64"])
def test_extremes_of_special_values(gpu: ctypes.CDLL, name: str, op: Op) -> None:
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -np.nan]
    with np.errstate(invalid="ignore"):
        a, b = (x.ravel().astype(name) for x in np.meshgrid(special, special))
    dst = np.zeros(a.size, name)
    code = GPU_REDUCE_DTYPES[name]
    assert gpu.pccl_gpu_reduce(code, op, dst.ctypes.data, pointers([a, b]), 2, a.size, None) == OK
    assert_same(dst, fold(op, [a, b]))


@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize("name", EIGHTHS)
def test_every_pair_of_float8(gpu: ctypes.CDLL, name: str, op: Op) -> None:
    every = np.arange(256, dtype=np.uint8)
    a, b = (x.ravel().copy().view(name) for x in np.meshgrid(every, every))
    dst = np.zeros_like(a)
    code = GPU_REDUCE_DTYPES[name]
    assert gpu.pccl_gpu_reduce(code, op, dst.ctypes.data, pointers([a, b]), 2, a.size, None) == OK
    assert_same(dst, fold(op, [a, b]))


@pytest.mark.parametrize("name", NARROW)
def test_narrow_sum_accumulates_in_float32(gpu: ctypes.CDLL, name: str) -> None:
    one = 2.0 ** -(ml_dtypes.finfo(name).nmant + 1)  # half a unit in the last place of 1
    srcs = [np.full(40, v, name) for v in (1.0, one, one, one, one)]
    dst = np.zeros(40, name)
    code = GPU_REDUCE_DTYPES[name]
    assert gpu.pccl_gpu_reduce(code, Op.SUM, dst.ctypes.data, pointers(srcs), 5, 40, None) == OK
    assert_same(dst, np.full(40, 1 + 4 * one, name))


def transposed(blocks: np.ndarray, rows: int, cols: int) -> np.ndarray:
    return blocks.reshape(rows, cols, -1).swapaxes(0, 1).ravel()


@settings(max_examples=80, deadline=None)
@given(
    rows=st.integers(1, 9),
    cols=st.integers(1, 9),
    nbytes=st.one_of(st.integers(0, 70), st.sampled_from([96, 256, 4096, 4099, 9000])),
    shifts=st.tuples(st.integers(0, 17), st.integers(0, 17)),
)
def test_permute_transposes_blocks(
    gpu: ctypes.CDLL, rows: int, cols: int, nbytes: int, shifts: tuple[int, int]
) -> None:
    x = np.random.default_rng(nbytes).integers(0, 256, rows * cols * nbytes, dtype=np.uint8)
    src, dst = Guarded.holding(x, shifts[0]), Guarded(x.size, shifts[1])
    assert gpu.pccl_gpu_permute(dst.address, src.address, rows, cols, nbytes, None) == OK
    want = transposed(x, rows, cols) if nbytes else x
    np.testing.assert_array_equal(dst.read(np.dtype(np.uint8)), want)


def test_permute_of_many_small_blocks(gpu: ctypes.CDLL) -> None:
    x = np.arange(300 * 70 * 3, dtype=np.uint32)
    dst = np.zeros_like(x)
    assert gpu.pccl_gpu_permute(dst.ctypes.data, x.ctypes.data, 300, 70, 12, None) == OK
    np.testing.assert_array_equal(dst, transposed(x, 300, 70))


@pytest.mark.parametrize(("rows", "cols"), [(1, 5), (5, 1), (2, 4), (4, 2), (3, 7)])
@pytest.mark.parametrize("name", ["bool", "float8_e5m2", "bfloat16", "float32", "complex128"])
def test_permute_reduce(gpu: ctypes.CDLL, name: str, rows: int, cols: int) -> None:
    dtype = np.dtype(name)
    for k, count, shift in itertools.product((2, 4, 7), (0, 1, 5, 32, 1031), (0, dtype.itemsize)):
        inputs = [sample(name, rows * cols * count, seed=j) for j in range(k)]
        folded = fold(Op.SUM, inputs)
        want = transposed(folded, rows, cols) if count else folded
        srcs = [Guarded.holding(x, shift) for x in inputs]
        dst = Guarded(want.nbytes, shift)
        args = (address_list(srcs), k, rows, cols, count, None)
        code = GPU_REDUCE_DTYPES[name]
        assert gpu.pccl_gpu_permute_reduce(code, Op.SUM, dst.address, *args) == OK
        assert_same(dst.read(dtype), want)


def test_what_there_is_not_is_refused(gpu: ctypes.CDLL) -> None:
    x, y = np.ones(4, np.complex128), np.zeros(4, np.complex128)
    srcs = pointers([x] * 9)

    def reduce(code: int, op: int, k: int, count: int = 4) -> int:
        return gpu.pccl_gpu_reduce(code, op, y.ctypes.data, srcs, k, count, None)

    f32, c128 = GPU_REDUCE_DTYPES["float32"], GPU_REDUCE_DTYPES["complex128"]
    refused = [(c128, Op.MAX, 2), (c128, Op.MIN, 2), (99, Op.SUM, 2), (-1, Op.SUM, 2)]
    refused += [(f32, 99, 2), (f32, Op.SUM, 0), (f32, Op.SUM, 1), (f32, Op.SUM, 9)]
    assert {reduce(*args) for args in refused} == {UNSUPPORTED}
    assert reduce(f32, Op.SUM, 2, 2**62) == UNSUPPORTED
    args = (y.ctypes.data, x.ctypes.data)
    assert gpu.pccl_gpu_permute(*args, -1, 2, 8, None) == UNSUPPORTED
    assert gpu.pccl_gpu_permute(*args, 2**40, 2**40, 8, None) == UNSUPPORTED
    assert gpu.pccl_gpu_permute(*args, 0, 2**40, 8, None) == OK
    assert not y.any()


def convert(gpu: ctypes.CDLL, what: str, x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    out = np.empty(x.size, dtype)
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    getattr(gpu, what)(pointer(x.ctypes.data), pointer(out.ctypes.data), size(x.size))
    return out


@pytest.mark.parametrize("name", NARROW)
def test_decoding_every_value(gpu: ctypes.CDLL, name: str) -> None:
    dtype = np.dtype(name)
    codes = np.arange(256**dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype)
    assert_same(convert(gpu, f"decode_{name}", codes, np.dtype(np.float32)), codes.astype("f4"))


@pytest.mark.parametrize("name", NARROW)
def test_encoding_between_all_values(gpu: ctypes.CDLL, name: str) -> None:
    """Rounding is monotone: its steps, and the floats beside each, settle all the rest."""
    dtype = np.dtype(name)
    codes = np.arange(256**dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype)
    with np.errstate(all="ignore"):  # casts of NaN and of what overflows
        values = np.unique(codes.astype(np.float64))
        values = values[np.isfinite(values)]
        steps = ((values[1:] + values[:-1]) / 2).astype(np.float32)
        limit = (values[-1:] + (values[-1:] - values[-2:-1]) / 2).astype(np.float32)
        x = np.concatenate([values.astype(np.float32), steps, limit, -limit])
        below, above = (np.nextafter(x, np.float32(end)) for end in (-np.inf, np.inf))
        x = np.concatenate([below, x, above, np.float32([np.inf, -np.inf, np.nan])])
        assert_same(convert(gpu, f"encode_{name}", x, dtype), x.astype(dtype))


@pytest.mark.parametrize("name", NARROW)
def test_encoding_a_stride_over_all_floats(gpu: ctypes.CDLL, name: str) -> None:
    dtype = np.dtype(name)
    x = np.arange(0, 2**32, 4093, dtype=np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        assert_same(convert(gpu, f"encode_{name}", x, dtype), x.astype(dtype))


def test_sanitizers_find_nothing(gpu_sanitized: Path) -> None:
    done = subprocess.run([gpu_sanitized], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "clean\n", "")
