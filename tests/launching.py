"""The MPI of this environment, as every test that starts several processes needs it."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

MPIEXEC = Path(sys.executable).with_name("mpiexec")

#: Whether the environment has to have an MPI.
REQUIRED = os.environ.get("PCCL_TEST_MPI") == "1"

#: Open MPI runs nothing as root, and no more processes than cores, unless it is told to.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def require_mpi() -> None:
    """Skips the test where the environment has no MPI, or fails where it has to have one."""
    if MPIEXEC.exists() and importlib.util.find_spec("mpi4py"):
        return
    reason = f"no mpi4py, or no mpiexec beside {sys.executable}: pip install 'pccl_jax[mpich]'"
    if REQUIRED:
        pytest.fail(reason)
    pytest.skip(reason)
