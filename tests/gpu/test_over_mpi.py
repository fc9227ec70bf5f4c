"""Pinned staging over a real MPI library, between processes whose device is the fake one."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT

MPIEXEC = Path(sys.executable).with_name("mpiexec")


def test_every_algorithm_between_processes(fake: ctypes.CDLL) -> None:
    if not (MPIEXEC.exists() and importlib.util.find_spec("mpi4py")):
        if os.environ.get("PCCL_TEST_MPI") == "1":
            pytest.fail(f"no mpi4py, or no mpiexec beside {sys.executable}")
        pytest.skip(f"no mpi4py, or no mpiexec beside {sys.executable}")
    script = Path(__file__).with_name("over_mpi.py")
    command = [MPIEXEC, "-n", "4", sys.executable, script, fake._name]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    more_ranks_than_cores = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    done = subprocess.run(
        command,
        env=os.environ | root | more_ranks_than_cores | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "all right"), done.stderr
