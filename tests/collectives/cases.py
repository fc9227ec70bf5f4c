"""Single collectives as data: exact inputs, the call, and the result that numpy computes."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

import pccl_jax

FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = ("bool", *INTS, *FLOATS, *COMPLEX)
OPS = ("sum", "prod", "max", "min", "mean")

_LARGE = 100_003


def operators(dtype: str) -> tuple[str, ...]:
    """The operators that go with a dtype."""
    if dtype == "bool":
        return (*OPS, "and", "or")
    return tuple(op for op in OPS if dtype not in COMPLEX or op not in ("max", "min"))


@dataclass(frozen=True)
class Case:
    """One call; ``shape`` is that of the operand on every rank."""

    collective: str
    shape: tuple[int, ...]
    dtype: str
    op: str = "sum"
    axis: int = 0
    tiled: bool = False

    def inputs(self, ranks: int) -> np.ndarray:
        """Operands of all ranks, whose reduction is exact in any order."""
        rng = np.random.default_rng(zlib.crc32(repr((self, ranks)).encode()))
        shape = (ranks, *self.shape)
        if self.dtype == "bool":
            return rng.integers(0, 2, shape).astype(bool)
        dtype = jnp.dtype(self.dtype)
        if self.op == "prod":
            return _factors(rng, shape, dtype)
        low = 0 if dtype.kind == "u" else -4
        values = rng.integers(low, 5, shape)
        if dtype.kind == "c":
            values = values + 1j * rng.integers(low, 5, shape)
            if self.op == "mean":  # XLA's quotient of complex numbers is not always the nearest
                values = values * ranks
        return values.astype(dtype)

    def call(self, x: Any, axis_name: Any = "x", *, algorithm: str | None = None) -> Any:
        """The call to pccl_jax."""
        if self.collective == "all_gather":
            return pccl_jax.all_gather(
                x, axis_name, axis=self.axis, tiled=self.tiled, algorithm=algorithm
            )
        if self.collective == "all_reduce":
            return pccl_jax.all_reduce(x, axis_name, op=self.op, algorithm=algorithm)
        return pccl_jax.reduce_scatter(
            x,
            axis_name,
            op=self.op,
            scatter_dimension=self.axis,
            tiled=self.tiled,
            algorithm=algorithm,
        )

    def call_lax(self, x: Any, axis_name: Any = "x") -> Any:
        """The same by jax.lax; None where lax has no such collective."""
        if self.collective == "all_gather":
            return lax.all_gather(x, axis_name, axis=self.axis, tiled=self.tiled)
        if self.collective == "all_reduce":
            named = {"sum": lax.psum, "max": lax.pmax, "min": lax.pmin, "mean": lax.pmean}
            return named[self.op](x, axis_name) if self.op in named else None
        if self.op != "sum" or self.dtype == "bool":
            return None
        dimension = self.axis % x.ndim  # which jax 0.10 wants not to be negative
        return lax.psum_scatter(x, axis_name, scatter_dimension=dimension, tiled=self.tiled)

    def expected(self, inputs: np.ndarray) -> np.ndarray:
        """The results of all ranks, computed by numpy."""
        ranks = len(inputs)
        if self.collective == "all_gather":
            join = np.concatenate if self.tiled else np.stack
            return np.stack([join(list(inputs), axis=self.axis)] * ranks)
        total = _reduce(inputs, self.op)
        if self.collective == "all_reduce":
            return np.stack([total] * ranks)
        if self.tiled:
            return np.stack(np.split(total, ranks, axis=self.axis))
        return np.moveaxis(total, self.axis, 0)


def _factors(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Units and powers of two, as many above one as below, so that no product overflows."""
    if dtype.kind == "c":
        return rng.choice([1, -1, 1j, -1j, 1 + 1j], shape).astype(dtype)
    if dtype.kind in "iu":
        return rng.integers(0, 4, shape).astype(dtype)
    grow = rng.choice([1.0, -1.0, 2.0], shape)
    grow[1::2] = rng.choice([1.0, -1.0, 0.5], grow[1::2].shape)
    return grow.astype(dtype)


def _reduce(inputs: np.ndarray, op: str) -> np.ndarray:
    counted = inputs.dtype == bool and op in ("sum", "mean")
    dtype = np.dtype(np.int32) if counted else inputs.dtype
    # In steps of one rank: numpy's own sums and products of small types are of wider types.
    function = {
        "sum": np.add,
        "mean": np.add,
        "prod": np.multiply,
        "max": np.maximum,
        "min": np.minimum,
        "and": np.logical_and,
        "or": np.logical_or,
    }[op]
    total = inputs[0].astype(dtype)
    with np.errstate(over="ignore"):
        for operand in inputs[1:]:
            total = function(total, operand.astype(dtype))
    return np.asarray(jnp.asarray(total) / len(inputs)) if op == "mean" else total


def of_every_geometry(ranks: int, seed: int) -> list[Case]:
    """All shapes that differ in how chunks lie; dtypes and operators go round with ``seed``."""
    n = ranks
    long = (2, 3, 37)  # rows of more than 64 bytes in any type but the smallest
    gathers = [(s, 0, False) for s in [(), (1,), (7,), (0,), (_LARGE,), (0, 3)]]
    gathers += [(s, 0, True) for s in [(1,), (7,), (0,), (3, 5)]]
    gathers += [((3, 5, 2), axis, tiled) for axis in (1, 2, -1) for tiled in (False, True)]
    gathers += [((*long, 5), axis, tiled) for axis in (1, -3) for tiled in (False, True)]
    scatters = [(s, 0, False) for s in [(n,), (n, 7), (n, 0)]]
    scatters += [((3, n), 1, False), ((2, 3, n), -1, False), ((2, n, 37), 1, False)]
    scatters += [(s, 0, True) for s in [(n,), (2 * n, 3), (n * (_LARGE // n),)]]
    scatters += [((3, 2 * n), 1, True), ((2, 3 * n, 37), 1, True), ((3, 2 * n), -1, True)]
    scatters += [((2, n, 3, 2), -3, True)]
    sizes = [(), (1,), (7,), (0,), (_LARGE,), (3, 5), (1025,)]
    kinds = [("all_gather", *g) for g in gathers] + [("reduce_scatter", *s) for s in scatters]
    kinds += [("all_reduce", s, 0, False) for s in sizes]
    return [
        _typed(collective, shape, axis, tiled, seed + 7 * i)
        for i, (collective, shape, axis, tiled) in enumerate(kinds)
    ]


def _typed(collective: str, shape: tuple[int, ...], axis: int, tiled: bool, turn: int) -> Case:
    large = max(shape, default=0) > 10_000
    dtypes: Sequence[str] = ("int16", "bfloat16", "float16", "uint8") if large else DTYPES
    dtype = dtypes[turn % len(dtypes)]
    ops = [op for op in operators(dtype) if op != "mean"] if collective != "all_gather" else ["sum"]
    return Case(collective, shape, dtype, ops[turn // len(dtypes) % len(ops)], axis, tiled)


def of_every_kernel(ranks: int, seed: int) -> list[Case]:
    """Every dtype with every operator, in lengths that leave each kind of remainder."""
    lengths = (1, 8, 37, 259)
    cases = []
    for i, (dtype, op) in enumerate((d, op) for d in DTYPES for op in operators(d)):
        length = lengths[(i + seed) % len(lengths)]
        cases.append(Case("all_reduce", (length,), dtype, op))
        cases.append(Case("reduce_scatter", (ranks * length,), dtype, op, tiled=True))
    return cases
