"""The handles by which an MPI library knows our element types and operators, as integers."""

from __future__ import annotations

from typing import Any

from pccl_jax.types import REDUCE_DTYPES, Op

#: The names in mpi4py; bool is reduced as bytes, and MPI has no 16-bit floats.
_TYPES = {
    "int8": "INT8_T",
    "int16": "INT16_T",
    "int32": "INT32_T",
    "int64": "INT64_T",
    "uint8": "UINT8_T",
    "uint16": "UINT16_T",
    "uint32": "UINT32_T",
    "uint64": "UINT64_T",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "complex64": "C_FLOAT_COMPLEX",
    "complex128": "C_DOUBLE_COMPLEX",
}


def type_handles(mpi: Any) -> dict[int, int]:
    """MPI's element types by the codes of ``REDUCE_DTYPES``; without those the library lacks."""
    found = {REDUCE_DTYPES[ours]: getattr(mpi, theirs) for ours, theirs in _TYPES.items()}
    return {
        code: mpi._handleof(datatype)
        for code, datatype in found.items()
        if datatype != mpi.DATATYPE_NULL
    }


def op_handles(mpi: Any) -> dict[int, int]:
    """MPI's operators by the values of :class:`~pccl_jax.types.Op`."""
    return {int(op): mpi._handleof(getattr(mpi, op.name)) for op in Op}
