"""One process never uses a communicator that the others wait to use for the first time."""

from __future__ import annotations

import os

import numpy as np
from _case import RANK, fork_from_launcher, report, step

import pccl_jax

if __name__ == "__main__":
    fork_from_launcher(3)
    from _plain import WORLD, check

    def once(comm) -> None:
        check(lambda x: pccl_jax.psum(x, comm=comm), np.ones(100), np.full(100, 3.0))

    lone = WORLD.Dup()
    if RANK < 2:
        with step("alone"):
            once(lone)
    WORLD.Barrier()
    with step("together"):
        once(WORLD)
    report("end")
    if RANK == 2:
        os._exit(0)  # its MPI would wait for the others, whom only a launcher knows to be gone
