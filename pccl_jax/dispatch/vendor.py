"""What collectives of somebody else's library cannot do, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable

from pccl_jax.dispatch.choice import Request
from pccl_jax.types import Collective, Op

#: Counts of elements are C ints in MPI.
MOST_ELEMENTS = 2**31 - 1

_SUMS = frozenset(
    {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
    | {"bool", "float32", "float64", "complex64", "complex128"}
)

_ELSE = "take another algorithm"


def vendor_obstacle(name: str, request: Request) -> str | None:
    """Why the vendor's algorithm ``name`` cannot serve ``request``; None for any that is ours."""
    return OBSTACLES[name](request) if name in OBSTACLES else None


def xla_obstacle(request: Request) -> str | None:
    """Why XLA cannot serve ``request``, or None where it can."""
    if request.communicator:
        return f"XLA does not connect the processes of a communicator: {_ELSE}"
    return None


def nccl_obstacle(request: Request) -> str | None:
    """Why ``hier_nccl`` cannot serve ``request``, or None where it can."""
    if request.platform not in ("cuda", "rocm"):
        return f"NCCL is for GPUs, these are {request.platform} devices: {_ELSE}"
    if not request.even:
        return f"its nodes have different numbers of ranks: {_ELSE}"
    return None


def mpi_obstacle(request: Request) -> str | None:
    """Why the MPI library's own collective cannot serve ``request``, or None where it can."""
    if request.platform != "cpu":
        return f"MPI's own collectives are for CPU devices, these are {request.platform}: {_ELSE}"
    if request.mpi is None:
        return (
            "no MPI program has been joined: start it with mpiexec, one process for each device, "
            "and call pccl_jax.init() first"
        )
    if request.ranks_per_process > 1:
        return (
            f"a group has {request.ranks_per_process} ranks in one process, and MPI has one rank "
            f"a process: start a process for each device, or {_ELSE}"
        )
    if request.elements > MOST_ELEMENTS:
        return (
            f"{request.elements} elements a rank are more than an MPI collective counts "
            f"({MOST_ELEMENTS}): split the array, or {_ELSE}"
        )
    return None if request.collective is Collective.ALL_GATHER else _reduction_obstacle(request)


def _reduction_obstacle(request: Request) -> str | None:
    op = request.op.name.lower()
    ordered = request.op in (Op.MAX, Op.MIN)
    if request.dtype not in _SUMS or (ordered and request.dtype.startswith("complex")):
        return f"MPI has no {op} of {request.dtype}: convert to float32, or {_ELSE}"
    if ordered and request.dtype.startswith("float"):
        return f"the {op} of MPI may lose a NaN, which must win as in jax.lax: {_ELSE}"
    return None


#: By algorithm that needs a vendor's library: what says whether that can serve.
OBSTACLES: dict[str, Callable[[Request], str | None]] = {
    "xla": xla_obstacle,
    "mpi": mpi_obstacle,
    "hier_nccl": nccl_obstacle,
}
