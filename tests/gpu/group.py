"""A group of fake GPUs: what its ranks put in, what they get out, what they should."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pccl_jax.schedule import Schedule, encode
from pccl_jax.types import GPU_REDUCE_DTYPES, Collective, Op

NCCL, MPI, AWARE_MPI = range(3)
GUARD = 256

#: By operator: inputs whose reduction is exact in any order, for up to 16 ranks.
_SMALL = {Op.SUM: (0, 4), Op.PROD: (1, 3), Op.MAX: (-9, 9), Op.MIN: (-9, 9)}


class _Call(ctypes.Structure):
    _fields_ = (
        ("program", ctypes.c_void_p),
        ("program_size", ctypes.c_size_t),
        ("other_program", ctypes.c_void_p),
        ("collective", ctypes.c_int32),
        ("op", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("places", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("item_bytes", ctypes.c_size_t),
        ("in_bytes", ctypes.c_size_t),
        ("out_bytes", ctypes.c_size_t),
        ("inside", ctypes.c_int32),
        ("between", ctypes.c_int32),
        ("reversed", ctypes.c_int32),
        ("missing", ctypes.c_int32),
        ("capturing", ctypes.c_int32),
        ("devices_in_process", ctypes.c_int32),
        ("again", ctypes.c_int32),
        ("other_call", ctypes.c_int32),
        ("timeout_s", ctypes.c_double),
    )


@dataclass
class Case:
    """One collective.

    Attributes:
        schedule: by which it is done.
        count: elements of a chunk (all-gather, reduce-scatter), of the vector (all-reduce).
        dtype: of the elements.
        op: of the reduction.
        rows: of a chunk within the larger array; divides ``count``.
        places: place on the axis of each schedule rank; in order if None.
        transports: inside a node, between nodes.
        settings: other fields of the call.
    """

    schedule: Schedule
    count: int
    dtype: str = "float32"
    op: Op = Op.SUM
    rows: int = 1
    places: tuple[int, ...] | None = None
    transports: tuple[int, int] = (NCCL, NCCL)
    settings: dict[str, Any] | None = None

    @property
    def axis(self) -> np.ndarray:
        """int64[ranks]: place on the axis of each schedule rank."""
        order = range(self.schedule.ranks) if self.places is None else self.places
        return np.array(order, np.int64)

    def inputs(self) -> list[np.ndarray]:
        """What each schedule rank puts in, as rows x elements."""
        n, dtype = self.schedule.ranks, np.dtype(self.dtype)
        scatters = self.schedule.collective is Collective.REDUCE_SCATTER
        shape = (self.rows, self.count // self.rows * (n if scatters else 1))
        rng = np.random.default_rng(n * 1000 + self.count)
        low, high = _SMALL[self.op]
        if dtype.kind in "ub":
            low = max(low, 0)
        values = [rng.integers(low, high, shape) for _ in range(n)]
        if self.op is Op.PROD:  # few enough twos
            values = [np.where(rng.random(shape) < 0.5, 1, v) for v in values]
        return [v.astype(dtype) for v in values]

    def expected(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """What each schedule rank should get, likewise."""
        n, axis = self.schedule.ranks, self.axis
        if self.schedule.collective is Collective.ALL_GATHER:
            whole = np.concatenate([inputs[r] for r in np.argsort(axis)], axis=1)
            return [whole] * n
        total = _reduce(self.op, inputs)
        if self.schedule.collective is Collective.ALL_REDUCE:
            return [total] * n
        return [np.split(total, n, axis=1)[place] for place in axis]


def _reduce(op: Op, inputs: list[np.ndarray]) -> np.ndarray:
    if inputs[0].dtype == bool:
        return np.any(inputs, axis=0) if op in (Op.SUM, Op.MAX) else np.all(inputs, axis=0)
    wide = [x.astype(np.float64) if x.dtype.kind not in "iuc" else x for x in inputs]
    fold = {Op.SUM: np.add, Op.PROD: np.multiply, Op.MAX: np.maximum, Op.MIN: np.minimum}[op]
    total = wide[0]
    for x in wide[1:]:
        total = fold(total, x)
    return total.astype(inputs[0].dtype)


class Knobs:
    """What the fakes are to do wrong, and have seen (tests/gpu/fake/knobs.h); zero at first."""

    def __init__(self, fake: ctypes.CDLL) -> None:
        fake.fake_get.restype = ctypes.c_int64
        self._fake = fake
        self._used: set[str] = set()

    def __getitem__(self, name: str) -> int:
        return int(self._fake.fake_get(name.encode()))

    def __setitem__(self, name: str, value: int) -> None:
        self._used.add(name)
        self._fake.fake_set(name.encode(), ctypes.c_int64(value))

    def reset(self) -> None:
        for name in self._used:
            self[name] = 0


class _Buffer:
    """Bytes amid bytes that must not change."""

    def __init__(self, nbytes: int) -> None:
        self.memory = np.full(nbytes + 2 * GUARD, 0xA5, np.uint8)
        self.nbytes = nbytes

    @property
    def data(self) -> np.ndarray:
        return self.memory[GUARD : GUARD + self.nbytes]

    def check(self) -> None:
        assert (self.memory[:GUARD] == 0xA5).all(), "bytes before a buffer were written"
        assert (self.memory[GUARD + self.nbytes :] == 0xA5).all(), "bytes after it were written"


def _pointers(arrays: list[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])


def call_of(case: Case, program: np.ndarray, axis: np.ndarray, in_: int, out: int) -> _Call:
    """The call as the library wants it; ``program`` and ``axis`` must outlive it."""
    call = _Call(
        program=program.ctypes.data,
        program_size=program.size,
        collective=case.schedule.collective,
        op=case.op,
        dtype=GPU_REDUCE_DTYPES.get(case.dtype, 5),
        places=axis.ctypes.data,
        rows=case.rows,
        item_bytes=np.dtype(case.dtype).itemsize,
        in_bytes=in_,
        out_bytes=out,
        inside=case.transports[0],
        between=case.transports[1],
        missing=-1,
        devices_in_process=1,
        timeout_s=20.0,
    )
    for name, value in (case.settings or {}).items():
        setattr(call, name, value)
    return call


def scratch_bytes(fake: ctypes.CDLL, call: _Call) -> tuple[int, int]:
    """What the executor says it needs: in all, and where NCCL has the collectives."""
    sizes = (ctypes.c_size_t * 2)()
    pointer = ctypes.POINTER(ctypes.c_size_t)
    first, second = (ctypes.cast(ctypes.byref(sizes, 8 * i), pointer) for i in range(2))
    assert fake.fake_scratch(ctypes.byref(call), first, second) == 0
    return sizes[0], sizes[1]


def run(fake: ctypes.CDLL, case: Case, *, native: bool = False, repeats: int = 1) -> str:
    """Runs the collective and compares; returns the errors of the ranks, a line each.

    Args:
        fake: the library.
        case: the collective.
        native: whether to give only the scratch that NCCL's own collectives need.
        repeats: how often, into the same buffers.
    """
    inputs = case.inputs()
    want = case.expected(inputs)
    errors, results = execute(fake, case, inputs, want[0].nbytes, native, repeats)
    for rank, (data, w) in enumerate(zip(results, want, strict=not errors)):
        got = data.view(w.dtype).reshape(w.shape)
        same = (got == w) | ((got != got) & (w != w))
        assert same.all(), f"rank {rank} of {case}: got {got}, expected {w}"
    return errors


def execute(
    fake: ctypes.CDLL,
    case: Case,
    inputs: list[np.ndarray],
    out_bytes: int,
    native: bool = False,
    repeats: int = 1,
) -> tuple[str, list[np.ndarray]]:
    """The errors of the ranks, a line each; what each got, uint8[out_bytes], if there are none."""
    program, axis = encode(case.schedule), case.axis
    call = call_of(case, program, axis, inputs[0].nbytes, out_bytes)
    sizes = scratch_bytes(fake, call)
    kept = [x.copy() for x in inputs]
    outs = [_Buffer(out_bytes) for _ in inputs]
    scratch = [_Buffer(sizes[1 if native else 0]) for _ in inputs]
    errors = ctypes.create_string_buffer(1 << 16)
    failed = fake.fake_run(
        ctypes.byref(call),
        _pointers(inputs),
        _pointers([out.data for out in outs]),
        _pointers([s.data for s in scratch]),
        repeats,
        errors,
        ctypes.c_size_t(len(errors)),
    )
    if failed:
        return errors.value.decode(), []
    for buffer in (*outs, *scratch):
        buffer.check()
    for x, before in zip(inputs, kept, strict=True):
        assert (x.view(np.uint8) == before.view(np.uint8)).all(), "an input was written"
    return "", [out.data for out in outs]


def run_one_rank(fake: ctypes.CDLL, case: Case, mpi: Any, rank: int) -> str:
    """Runs the collective for one rank; the others are other processes of mpi4py's world.

    Args:
        fake: the library.
        case: the collective.
        mpi: the module ``mpi4py.MPI``.
        rank: which of the schedule's this process is.

    Returns:
        What is wrong, or ``""``.
    """
    inputs = case.inputs()
    want = case.expected(inputs)[rank]
    program, axis = encode(case.schedule), case.axis
    call = call_of(case, program, axis, inputs[0].nbytes, want.nbytes)
    out, scratch = _Buffer(want.nbytes), _Buffer(scratch_bytes(fake, call)[0])
    fake.fake_run_over_mpi.restype = ctypes.c_char_p
    error = fake.fake_run_over_mpi(
        ctypes.byref(call),
        mpi.__file__.encode(),
        mpi.ANY_SOURCE,
        ctypes.c_uint64(mpi._handleof(mpi.COMM_WORLD)),
        ctypes.c_int64(rank),
        *(ctypes.c_void_p(x.ctypes.data) for x in (inputs[rank], out.data, scratch.data)),
    )
    for buffer in (out, scratch):
        buffer.check()
    same = (out.data.view(want.dtype).reshape(want.shape) == want).all()
    return error.decode() or ("" if same else f"wrong result on rank {rank} of {case}")


def chunk_count(case_count: int, schedule: Schedule) -> int:
    """Elements for an all-reduce that are about as many as ``case_count`` a chunk."""
    if schedule.collective is not Collective.ALL_REDUCE:
        return case_count
    return max(1, math.prod((case_count, schedule.ranks)) - 1)
