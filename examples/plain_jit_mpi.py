"""Conjugate gradients over MPI: each process jits a program of its own, `comm=` connects them.

    mpiexec -n 4 python examples/plain_jit_mpi.py

Kernel ridge regression: (K + r I) w = y for noisy samples y of a curve. Each process keeps the rows
of K for its own samples. A step gathers the direction, multiplies, and sums two dot products; the
whole solver is one jitted `while_loop`. There is no mesh, no shard_map and no jax.distributed.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from mpi4py import MPI

import pccl_jax

RIDGE = 0.5
WIDTH = 0.05


def kernel(a: jax.Array, b: jax.Array) -> jax.Array:
    """`[m], [n] -> [m, n]`: how close the samples are."""
    return jnp.exp(-(((a[:, None] - b[None, :]) / WIDTH) ** 2))


def solve(
    mine: jax.Array, samples: jax.Array, tolerance: float, comm: MPI.Comm
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Conjugate gradients.

    Args:
        mine: `[m]`, positions of this process's samples.
        samples: `[m]`, their values.
        tolerance: at which length of the residual to stop.
        comm: the processes, in the order of their samples.

    Returns:
        This process's `[m]` of the weights, steps, length of the residual.
    """
    rows = kernel(mine, pccl_jax.all_gather(mine, comm=comm, tiled=True))

    def multiply(v):
        return rows @ pccl_jax.all_gather(v, comm=comm, tiled=True) + RIDGE * v

    def dot(a, b):
        return pccl_jax.psum(a @ b, comm=comm)

    def step(state):
        weights, residual, direction, norm, steps = state
        product = multiply(direction)
        size = norm / dot(direction, product)
        residual = residual - size * product
        after = dot(residual, residual)
        turned = residual + after / norm * direction
        return weights + size * direction, residual, turned, after, steps + 1

    first = (jnp.zeros_like(samples), samples, samples, dot(samples, samples), 0)
    weights, _, _, norm, steps = jax.lax.while_loop(
        lambda state: (state[3] > tolerance**2) & (state[4] < 1000), step, first
    )
    return weights, steps, jnp.sqrt(norm)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--samples", type=int, default=1024, help="in all processes together")
    args = options.parse_args()
    comm = MPI.COMM_WORLD
    if args.samples % comm.size:
        options.error(f"--samples {args.samples} must be divisible by {comm.size} processes")
    jax.config.update("jax_enable_x64", True)

    here = slice(comm.rank * args.samples // comm.size, (comm.rank + 1) * args.samples // comm.size)
    where = np.linspace(0, 1, args.samples)
    noise = np.random.default_rng(0).normal(size=args.samples)
    curve = np.sin(12 * where) + 0.5 * np.sin(31 * where)
    values = curve + 0.3 * noise

    program = jax.jit(lambda x, y: solve(x, y, 1e-9, comm))
    weights, steps, residual = program(where[here], values[here])

    # Every process predicts the curve at its own samples.
    fitted = jax.jit(
        lambda x, w: (
            kernel(x, pccl_jax.all_gather(x, comm=comm, tiled=True))
            @ pccl_jax.all_gather(w, comm=comm, tiled=True)
        )
    )(where[here], weights)
    spread = (0.3 * noise).std()
    error = jnp.sqrt(pccl_jax.pmean(jnp.mean((fitted - curve[here]) ** 2), comm=comm))

    matrix = np.asarray(kernel(where, where)) + RIDGE * np.eye(args.samples)
    apart = np.abs(np.linalg.solve(matrix, values)[here] - weights).max()
    apart = pccl_jax.pmax(apart, comm=comm)
    if comm.rank == 0:
        print(f"{comm.size} process(es) with {args.samples // comm.size} samples each")
        print(f"residual {residual:.1e} after {steps} steps")
        print(f"largest difference to numpy.linalg.solve {apart:.1e}")
        print(f"error of the curve {error:.3f}, of a sample {spread:.3f}")
    assert apart < 1e-6, f"the weights are {apart:.1e} away from numpy's"
    assert error < spread, f"the curve is missed by {error:.3f}"


if __name__ == "__main__":
    main()
