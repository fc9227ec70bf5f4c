"""Before and after MPI a communicator is an exception; MPI itself would end the process."""

from __future__ import annotations

import mpi4py
import numpy as np
import pytest
from _case import report, step

import pccl_jax

if __name__ == "__main__":
    mpi4py.rc.initialize = False
    from _plain import WORLD, check
    from mpi4py import MPI

    def once(count: int) -> None:
        check(lambda x: pccl_jax.psum(x, comm=WORLD), np.ones(count), np.full(count, 2.0))

    with step("before"), pytest.raises(pccl_jax.ConfigurationError, match="MPI is not init"):
        once(1)
    MPI.Init_thread()
    with step("between"):
        once(2)
    WORLD.Barrier()
    MPI.Finalize()
    with step("after"), pytest.raises(pccl_jax.ConfigurationError, match="MPI has been final"):
        once(3)
    report("end")
