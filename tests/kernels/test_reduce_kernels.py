"""Reduction kernels against numpy: every type and operator, bit for bit."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from reference import HALVES, assert_same, bits, fold, misaligned, pointers, sample

from pccl_jax.types import REDUCE_DTYPES, Op, reduces

NAMES = list(REDUCE_DTYPES)
SUPPORTED = [(name, op) for name in NAMES for op in Op if reduces(np.dtype(name), op)]
NUM_SOURCES = (1, 2, 3, 4, 5, 8, 17)
COUNTS = (0, 1, 7, 64, 1000, 4097)


def isas(lib: ctypes.CDLL) -> range:
    return range(lib.best_isa() + 1)


def run(lib: ctypes.CDLL, op: Op, isa: int, dst: np.ndarray, srcs: Sequence[np.ndarray]) -> None:
    code = REDUCE_DTYPES[dst.dtype.name]
    assert lib.reduce(code, op, isa, dst.ctypes.data, pointers(srcs), len(srcs), dst.size)


def test_item_sizes_agree_with_numpy(lib: ctypes.CDLL) -> None:
    sizes = {name: lib.item_size(code) for name, code in REDUCE_DTYPES.items()}
    assert sizes == {name: np.dtype(name).itemsize for name in NAMES}
    assert lib.item_size(99) == 0


def test_kernels_exist_where_python_says_so(lib: ctypes.CDLL) -> None:
    found = {(n, op) for n in NAMES for op in Op if lib.has_default(REDUCE_DTYPES[n], op)}
    assert found == set(SUPPORTED)
    assert not lib.has_default(99, Op.SUM)
    assert not any(lib.has_default(code, 99) for code in REDUCE_DTYPES.values())


@pytest.mark.parametrize(("name", "op"), SUPPORTED)
def test_matches_left_fold(lib: ctypes.CDLL, name: str, op: Op) -> None:
    for k in NUM_SOURCES:
        whole = [sample(name, max(COUNTS), seed=j) for j in range(k)]
        for count in COUNTS:
            srcs = [w[:count].copy() for w in whole]
            want = fold(op, srcs) if k > 1 else srcs[0]
            for isa in isas(lib):
                dst = np.zeros(count, name)
                run(lib, op, isa, dst, srcs)
                assert_same(dst, want)


@pytest.mark.parametrize(("name", "op"), SUPPORTED)
def test_in_place_and_misaligned(lib: ctypes.CDLL, name: str, op: Op) -> None:
    itemsize = np.dtype(name).itemsize
    for k in NUM_SOURCES:
        whole = [sample(name, max(COUNTS), seed=j) for j in range(k)]
        for count in COUNTS:
            want = np.zeros(count, name)
            run(lib, op, 0, want, [w[:count] for w in whole])
            for isa in isas(lib):
                for target in {0, k // 2, k - 1}:
                    for shift in (itemsize, 1):
                        srcs = [misaligned(w[:count], shift * (j % 3)) for j, w in enumerate(whole)]
                        run(lib, op, isa, srcs[target], srcs)
                        np.testing.assert_array_equal(bits(srcs[target]), bits(want))


@pytest.mark.parametrize(("name", "op"), SUPPORTED)
def test_result_depends_on_no_position(lib: ctypes.CDLL, name: str, op: Op) -> None:
    """Cut anywhere, on every instruction set, the bits are the same, those of NaN included."""
    for k in (2, 5, 8):
        srcs = [sample(name, 1003, seed=j) for j in range(k)]
        want = np.zeros(1003, name)
        run(lib, op, lib.best_isa(), want, srcs)
        for isa in isas(lib):
            got = np.zeros(1003, name)
            for begin, end in ((0, 1), (1, 3), (3, 20), (20, 531), (531, 1003)):
                run(lib, op, isa, got[begin:end], [s[begin:end] for s in srcs])
            np.testing.assert_array_equal(bits(got), bits(want))


@pytest.mark.parametrize("op", [Op.MAX, Op.MIN])
@pytest.mark.parametrize("name", [*HALVES, "float32", "float64"])
def test_extremes_of_special_values(lib: ctypes.CDLL, name: str, op: Op) -> None:
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -np.nan]
    a, b = (x.ravel().astype(name) for x in np.meshgrid(special, special))
    for isa in isas(lib):
        dst = np.zeros(a.size, name)
        run(lib, op, isa, dst, [a, b])
        assert_same(dst, fold(op, [a, b]))


@pytest.mark.parametrize("name", HALVES)
def test_every_half_value_survives(lib: ctypes.CDLL, name: str) -> None:
    x = np.arange(65536, dtype=np.uint16).view(name)
    for op, neutral in ((Op.SUM, -0.0), (Op.PROD, 1.0), (Op.MAX, -np.inf), (Op.MIN, np.inf)):
        for isa in isas(lib):
            dst = np.zeros_like(x)
            run(lib, op, isa, dst, [x, np.full_like(x, neutral)])
            assert_same(dst, x)


@pytest.mark.parametrize("op", [Op.SUM, Op.PROD])
@pytest.mark.parametrize("name", HALVES)
def test_half_rounds_once_to_nearest_even(lib: ctypes.CDLL, name: str, op: Op) -> None:
    """Random bits reach ties, overflow and subnormal results, which normal values do not."""
    rng = np.random.default_rng(0)
    for k in (2, 3):
        srcs = [rng.integers(0, 65536, 200_000, dtype=np.uint16).view(name) for _ in range(k)]
        for isa in isas(lib):
            dst = np.zeros_like(srcs[0])
            run(lib, op, isa, dst, srcs)
            assert_same(dst, fold(op, srcs))


def test_half_sum_accumulates_in_float32(lib: ctypes.CDLL) -> None:
    for name in HALVES:
        srcs = [np.full(40, v, name) for v in (2048.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)]
        dst = np.zeros(40, name)
        run(lib, Op.SUM, lib.best_isa(), dst, srcs)
        assert_same(dst, np.full(40, 2056.0, name))


@pytest.mark.parametrize(
    ("name", "op"),
    [("float16", op) for op in Op]
    + [(n, op) for n in ("bfloat16", "float32", "float64") for op in (Op.MAX, Op.MIN)],
)
def test_flushing_threads_get_the_same(lib: ctypes.CDLL, name: str, op: Op) -> None:
    """XLA's threads flush subnormals; these reductions never compute with one."""
    tiny = ml_dtypes.finfo(name).smallest_subnormal
    srcs = [np.array([1, 5, -7, 100, -100, 0], name) * tiny for _ in range(2)]
    srcs[1] = srcs[1][::-1].copy()
    want = fold(op, srcs)
    for isa in isas(lib):
        dst = np.zeros_like(want)
        if not lib.flush_subnormals(1):
            pytest.fail("this machine's flush mode is not known to the test")
        try:
            run(lib, op, isa, dst, srcs)
        finally:
            lib.flush_subnormals(0)
        assert_same(dst, want)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["int8", "bfloat16", "float32", "complex128"])
def test_broadcast(lib: ctypes.CDLL, name: str, stream: bool) -> None:
    """Every destination gets the result, whether it is a buffer of its own or a source."""
    code = REDUCE_DTYPES[name]
    for count in COUNTS:
        for num_dst, in_place in ((1, 0), (1, 1), (4, 0), (4, 3)):
            srcs = [misaligned(sample(name, count, seed=j), j) for j in range(4)]
            want = fold(Op.SUM, srcs)
            fresh = [misaligned(np.zeros(count, name), j) for j in range(num_dst - in_place)]
            dsts = srcs[:in_place] + fresh
            args = (pointers(dsts), num_dst, pointers(srcs), 4, count, stream)
            lib.reduce_broadcast(code, Op.SUM, *args)
            for dst in dsts:
                assert_same(dst, want)


def test_sanitizers_find_nothing(sanitized: Path) -> None:
    done = subprocess.run([sanitized], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "clean\n", "")
