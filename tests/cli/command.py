"""The command as a user runs it: alone, or under the mpiexec of this environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from launching import MPIEXEC, OPEN_MPI, REQUIRED

ROOT = Path(__file__).parents[2]

across_processes = pytest.mark.skipif(
    not REQUIRED, reason="PCCL_TEST_MPI=1 runs it; needs mpi4py, an MPI"
)


def command(
    *words: str, processes: int | None = None, path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs ``python -m pccl_jax`` from the root; ``path`` is a folder of more modules."""
    launcher = [] if processes is None else [str(MPIEXEC), "-n", str(processes)]
    search = [str(ROOT), str(path or ""), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [*launcher, sys.executable, "-m", "pccl_jax", *words],
        cwd=ROOT,
        env=os.environ | OPEN_MPI | {"PYTHONPATH": os.pathsep.join(filter(None, search))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def not_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the test no launcher has started this process, whoever has started the tests."""
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
