"""One process is killed while the others wait for it in a collective over a communicator."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
from _case import RANK, fork_from_launcher, report, step

import pccl_jax

if __name__ == "__main__":
    fork_from_launcher(3)
    from _plain import WORLD, check

    def once() -> None:
        check(lambda x: pccl_jax.psum(x, comm=WORLD), np.ones(100), np.full(100, 3.0))

    with step("warm up"):
        once()
    if RANK == 2:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    with step("last"):
        once()
    report("end")
