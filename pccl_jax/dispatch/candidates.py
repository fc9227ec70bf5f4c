"""Which algorithms can serve a request."""

from __future__ import annotations

from pccl_jax import schedule
from pccl_jax.dispatch.choice import Request
from pccl_jax.dispatch.vendor import vendor_obstacle
from pccl_jax.types import Collective, Op

#: XLA on CPU adds these up in their own precision, where we promise float32.
_SHORT_FLOATS = ("float16", "bfloat16")


def own(request: Request) -> list[str]:
    """Our own algorithms that can serve ``request``, oldest first."""
    names = schedule.names(request.collective)
    return [name for name in names if request.even or not schedule.is_hierarchical(name)]


def candidates(request: Request) -> frozenset[str]:
    """All that may be chosen for ``request``: ours, XLA's and the MPI library's.

    XLA's only where it connects the ranks and keeps our promises: no reduction in less than
    float32, and none that XLA does not have as one collective.
    """
    vendors = {name for name in ("xla", "mpi") if vendor_obstacle(name, request) is None}
    exact = request.op is Op.SUM and request.dtype not in _SHORT_FLOATS
    if request.collective is not Collective.ALL_GATHER and not exact:
        vendors.discard("xla")
    return frozenset(vendors.union(own(request)))
