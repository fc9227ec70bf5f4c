"""What a call costs beside mpi4jax: `mpiexec -n 2 python tools/compare_mpi4jax.py`.

Microseconds of a jitted all-reduce until its result is there, the median of rounds in which the
contenders take turns. A jitted addition, which sends nothing, is what JAX itself needs. With one
process there is nothing to send: what is left is what a call costs. mpi4jax may be missing.
"""

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
from mpi4py import MPI

import pccl_jax

ROUNDS = 15


def contenders(chain: int) -> dict[str, Callable[[jax.Array], jax.Array]]:
    """Jitted programs of ``chain`` all-reduces, each of the result of the one before."""
    comm = MPI.COMM_WORLD
    steps: dict[str, Callable[[jax.Array], jax.Array]] = {
        "jit alone": lambda x: x + 1,
        "pccl_jax": lambda x: pccl_jax.psum(x, comm=comm),
    }
    if importlib.util.find_spec("mpi4jax"):
        import mpi4jax

        steps["mpi4jax"] = lambda x: mpi4jax.allreduce(x, op=MPI.SUM, comm=comm)

    def program(step: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
        def run(x: jax.Array) -> jax.Array:
            for _ in range(chain):
                x = step(x) / comm.size
            return x

        return jax.jit(run)

    return {name: program(step) for name, step in steps.items()}


def microseconds(function: Callable[[jax.Array], jax.Array], x: jax.Array, calls: int) -> float:
    MPI.COMM_WORLD.Barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        jax.block_until_ready(function(x))
    return (time.perf_counter() - begin) / calls * 1e6


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--elements", type=int, nargs="+", default=[1, 16384, 1048576])
    options.add_argument("--chain", type=int, default=1, help="all-reduces in one program")
    args = options.parse_args()
    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    functions = contenders(args.chain)
    if rank == 0:
        print(f"{size} process(es), us a call of {args.chain} all-reduce(s), float32, median")
        print("elements".rjust(9), *(name.rjust(12) for name in functions))
    for elements in args.elements:
        x = jnp.ones(elements, jnp.float32)
        times: dict[str, list[float]] = {name: [] for name in functions}
        for function in functions.values():
            jax.block_until_ready(function(x))
        for _ in range(ROUNDS):
            for name, function in functions.items():
                times[name].append(microseconds(function, x, 100 if elements < 100_000 else 5))
        if rank == 0:
            medians = (f"{statistics.median(times[name]):12.0f}" for name in functions)
            print(f"{elements:9}", *medians, flush=True)


if __name__ == "__main__":
    main()
