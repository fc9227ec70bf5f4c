"""Collectives over an MPI communicator, inside ``jax.jit`` of each process: ``comm=``.

Every process runs a program of its own, on one device; no ``jax.distributed``, no mesh. The ranks
are those of the communicator. As with MPI, processes have to make the same calls on a communicator,
in the same order; a jitted program makes its calls in the order in which they were traced, in loops
and branches too, and all of them, whether their results are used or not. Calls on different
communicators, and of other libraries, are not ordered among each other but by data.

The first use of a communicator is collective over it. It makes a communicator of our own, so that
nothing here meets the user's messages, nor those of other libraries.

Gradients are those of :func:`jax.shard_map` with ``check_vma=True``: of a loss that is the same on
every process because it comes out of a sum or a mean over them, by what each process passes in. So
the transpose of a sum hands the cotangent on, as mpi4jax's does; all-gather and reduce-scatter are
each other's. There is one thing that shard_map sees in the types, and that has to be said here:
where a value that is equal on all processes goes into something that is not. See :func:`pvary`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pccl_jax._jax_compat import canonicalize_axis, hide_call_orders
from pccl_jax.api.arguments import as_operator, check_operator, check_scatter_dimension
from pccl_jax.dispatch import check_algorithm
from pccl_jax.primitives import all_gather_p, all_reduce_p, reduce_scatter_p, vary_p
from pccl_jax.runtime import Communicator, joined
from pccl_jax.types import Collective, Op, reduces


def all_reduce(x: Any, comm: Any, op: str, algorithm: str | None) -> Any:
    """:func:`pccl_jax.all_reduce` with ``comm=``."""
    kind = Op.SUM if op == "mean" else as_operator(op)

    def bind(leaf: Any, communicator: Communicator) -> Any:
        leaf = _reducible(leaf, op, kind)
        total = all_reduce_p.bind(
            leaf,
            axes=(communicator,),
            axis_index_groups=None,
            op=kind,
            invariant=True,
            algorithm=algorithm,
        )
        return total / communicator.size if op == "mean" else total

    return _map(bind, x, comm, algorithm, Collective.ALL_REDUCE)


def all_gather(x: Any, comm: Any, axis: int, tiled: bool, algorithm: str | None) -> Any:
    """:func:`pccl_jax.all_gather` with ``comm=``."""

    def bind(leaf: Any, communicator: Communicator) -> Any:
        return all_gather_p.bind(
            leaf,
            all_gather_dimension=canonicalize_axis(axis, leaf.ndim + (0 if tiled else 1)),
            axis_name=(communicator,),
            axis_index_groups=None,
            axis_size=communicator.size,
            tiled=tiled,
            algorithm=algorithm,
        )

    return _map(bind, x, comm, algorithm, Collective.ALL_GATHER)


def reduce_scatter(
    x: Any, comm: Any, op: str, scatter_dimension: int, tiled: bool, algorithm: str | None
) -> Any:
    """:func:`pccl_jax.reduce_scatter` with ``comm=``."""
    kind = Op.SUM if op == "mean" else as_operator(op)

    def bind(leaf: Any, communicator: Communicator) -> Any:
        leaf, size = _reducible(leaf, op, kind), communicator.size
        total = reduce_scatter_p.bind(
            leaf,
            scatter_dimension=check_scatter_dimension(leaf, scatter_dimension, size, tiled),
            axis_name=(communicator,),
            axis_index_groups=None,
            axis_size=size,
            tiled=tiled,
            op=kind,
            algorithm=algorithm,
        )
        return total / size if op == "mean" else total

    return _map(bind, x, comm, algorithm, Collective.REDUCE_SCATTER)


def pvary(x: Any, *, comm: Any) -> Any:
    """Has gradients summed over the processes: ``[...] -> [...]``, the same values.

    As :func:`jax.lax.pvary`, which shard_map inserts by itself. For a value that is equal on all
    processes, such as a parameter or the result of a sum over them, where it is used together
    with what differs between them, such as a batch. Each process has a part of its gradient
    then; without this the gradient is that part.

    Args:
        x: array, or pytree of arrays, equal on all processes.
        comm: as for :func:`pccl_jax.psum`.

    Raises:
        TypeError, ValueError, ConfigurationError: as for :func:`pccl_jax.psum` with ``comm=``.

    Example:
        >>> import jax.numpy as jnp, pccl_jax  # doctest: +SKIP
        >>> from mpi4py import MPI  # doctest: +SKIP
        >>> def loss(w, batch):  # w: equal on all processes
        ...     w = pccl_jax.pvary(w, comm=MPI.COMM_WORLD)
        ...     return pccl_jax.pmean(jnp.mean((batch @ w) ** 2), comm=MPI.COMM_WORLD)
        >>> jax.grad(loss)(w, batch)  # doctest: +SKIP
        Array([1.5, 0.25], dtype=float32)
    """
    return _map(
        lambda leaf, communicator: vary_p.bind(leaf, axes=(communicator,)),
        x,
        comm,
        None,
        Collective.ALL_REDUCE,
    )


def _map(
    bind: Callable[[Any, Communicator], Any],
    x: Any,
    comm: Any,
    algorithm: str | None,
    collective: Collective,
) -> Any:
    """``bind`` of every leaf that can be sent."""
    check_algorithm(algorithm, collective)
    hide_call_orders()
    communicator = joined(comm)

    def one(leaf: Any) -> Any:
        leaf = jnp.asarray(leaf)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
            raise TypeError(f"{leaf.dtype} is sent over mesh axes only: pass jax.random.key_data.")
        if jax.dtypes.itemsize_bits(leaf.dtype) < 8:
            raise TypeError(f"{leaf.dtype} is sent over mesh axes only: convert it to int8.")
        if any(jax.typeof(leaf).sharding.spec):  # over an explicit mesh, of one device
            leaf = jax.sharding.reshard(leaf, jax.P())
        return bind(leaf, communicator)

    return jax.tree.map(one, x)


def _reducible(leaf: Any, op: str, kind: Op) -> Any:
    """The leaf as it is reduced; raises TypeError where there is no kernel for it."""
    leaf = check_operator(leaf, op, kind)
    if not reduces(leaf.dtype, kind):
        raise TypeError(f"no kernel reduces {leaf.dtype} with {op}: convert it, e.g. to float32.")
    return leaf
