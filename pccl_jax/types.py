"""The nouns every layer shares: collectives, reduction operators, element types.

The integer values are part of the contract with the extension (``kernels/types.h``).
"""

from __future__ import annotations

import enum

import numpy as np


class Collective(enum.IntEnum):
    """What every rank of a group holds before and after.

    ALL_GATHER: one chunk each -> all chunks. REDUCE_SCATTER: all chunks -> the
    reduction of one's own chunk. ALL_REDUCE: a vector -> the reduction of all vectors.
    """

    ALL_GATHER = 0
    REDUCE_SCATTER = 1
    ALL_REDUCE = 2

    @property
    def label(self) -> str:
        """The name in messages and on the command line, e.g. ``all_gather``."""
        return self.name.lower()


class Op(enum.IntEnum):
    """An associative and commutative reduction operator."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3


#: Element types with reduction kernels, by numpy name; the value is the extension's code.
REDUCE_DTYPES: dict[str, int] = {
    "bool": 0,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "uint8": 5,
    "uint16": 6,
    "uint32": 7,
    "uint64": 8,
    "float16": 9,
    "bfloat16": 10,
    "float32": 11,
    "float64": 12,
    "complex64": 13,
    "complex128": 14,
}

#: Those of the GPU kernels, which reduce 8-bit floats as well.
GPU_REDUCE_DTYPES: dict[str, int] = REDUCE_DTYPES | {"float8_e4m3fn": 15, "float8_e5m2": 16}

_UNORDERED = frozenset({"complex64", "complex128"})


def reduces(dtype: np.dtype, op: Op, platform: str = "cpu") -> bool:
    """Whether there is a kernel for ``platform`` that reduces ``dtype`` with ``op``."""
    kernels = REDUCE_DTYPES if platform == "cpu" else GPU_REDUCE_DTYPES
    ordered_only = op in (Op.MAX, Op.MIN)
    return dtype.name in kernels and not (ordered_only and dtype.name in _UNORDERED)
