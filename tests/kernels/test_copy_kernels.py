"""Copies: every byte of the destination, and none beside it."""

from __future__ import annotations

import ctypes
import itertools
import mmap

import numpy as np
import pytest

GUARD = 64
SIZES = (0, 1, 63, 64, 255, 256, 257, 1000, 8192, 8193, 100_003)
SHIFTS = (0, 1, 16, 63)


def source(nbytes: int, shift: int) -> np.ndarray:
    return np.random.default_rng(nbytes).integers(0, 255, nbytes + shift, dtype=np.uint8)[shift:]


def guarded(nbytes: int, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """Memory full of 255, and the part of it, ``shift`` after a line, that is to be written."""
    memory = np.full(nbytes + 3 * GUARD + shift, 255, np.uint8)
    start = -memory.ctypes.data % GUARD + GUARD + shift
    return memory, memory[start : start + nbytes]


def assert_written(memory: np.ndarray, part: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_array_equal(part, want)
    part[...] = 255
    assert (memory == 255).all(), "bytes beside the destination were written"


@pytest.mark.parametrize("stream", [False, True])
def test_copy(lib: ctypes.CDLL, stream: bool) -> None:
    for nbytes, from_shift, to_shift in itertools.product(SIZES, SHIFTS, SHIFTS):
        src = source(nbytes, from_shift)
        memory, dst = guarded(nbytes, to_shift)
        lib.copy(dst.ctypes.data, src.ctypes.data, nbytes, stream)
        assert_written(memory, dst, src)


@pytest.mark.parametrize("stream", [False, True])
def test_copy_to_many(lib: ctypes.CDLL, stream: bool) -> None:
    for nbytes in SIZES:
        src = source(nbytes, 1)
        targets = [guarded(nbytes, shift) for shift in SHIFTS]
        addresses = [dst.ctypes.data for _, dst in targets] + [src.ctypes.data]
        want = src.copy()
        dsts = (ctypes.c_void_p * len(addresses))(*addresses)
        lib.copy_to_many(dsts, len(addresses), src.ctypes.data, nbytes, stream)
        np.testing.assert_array_equal(src, want)
        for memory, dst in targets:
            assert_written(memory, dst, want)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("row_bytes", [1, 2, 3, 4, 8, 16, 24, 300, 4096])
def test_copy_2d(lib: ctypes.CDLL, row_bytes: int, stream: bool) -> None:
    for rows, from_gap, to_gap in itertools.product((0, 1, 2, 33), (0, 5), (0, 7)):
        from_stride, to_stride = row_bytes + from_gap, row_bytes + to_gap
        src = source(rows * from_stride, 1)
        memory, dst = guarded(rows * to_stride, 1)
        want = dst.copy().reshape(rows, to_stride)
        want[:, :row_bytes] = src.reshape(rows, from_stride)[:, :row_bytes]
        addresses = (dst.ctypes.data, to_stride, src.ctypes.data, from_stride)
        lib.copy_2d(*addresses, rows, row_bytes, stream)
        assert_written(memory, dst, want.ravel())


@pytest.mark.parametrize("nbytes", [0, 1, 4 << 20, (16 << 20) + 12345])
def test_prepare_output_changes_no_byte(lib: ctypes.CDLL, nbytes: int) -> None:
    memory = np.frombuffer(mmap.mmap(-1, nbytes + 4096, mmap.MAP_PRIVATE), np.uint8)
    part = memory[100 : 100 + nbytes]
    part[::4096] = 7
    lib.prepare_output(part.ctypes.data, nbytes)
    assert (part[::4096] == 7).all()
    assert int(np.count_nonzero(memory)) == part[::4096].size
