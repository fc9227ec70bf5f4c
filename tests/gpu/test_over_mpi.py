"""Pinned staging over a real MPI library, between processes whose device is the fake one."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from launching import MPIEXEC, OPEN_MPI, require_mpi

from .conftest import ROOT


def test_every_algorithm_between_processes(fake: ctypes.CDLL) -> None:
    require_mpi()
    script = Path(__file__).with_name("over_mpi.py")
    command = [MPIEXEC, "-n", "4", sys.executable, script, fake._name]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command,
        env=os.environ | OPEN_MPI | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "all right"), done.stderr
