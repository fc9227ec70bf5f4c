"""The command as a user runs it: alone, or under the mpiexec of this environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

across_processes = pytest.mark.skipif(
    os.environ.get("PCCL_TEST_MPI") != "1", reason="PCCL_TEST_MPI=1 runs it; needs mpi4py, an MPI"
)

#: Open MPI runs nothing as root, and no more processes than cores, unless it is told to.
_OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def command(
    *words: str, processes: int | None = None, path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs ``python -m pccl_jax`` from the root; ``path`` is a folder of more modules."""
    mpiexec = str(Path(sys.executable).with_name("mpiexec"))
    launcher = [] if processes is None else [mpiexec, "-n", str(processes)]
    search = [str(ROOT), str(path or ""), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [*launcher, sys.executable, "-m", "pccl_jax", *words],
        cwd=ROOT,
        env=os.environ | _OPEN_MPI | {"PYTHONPATH": os.pathsep.join(filter(None, search))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def not_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the test no launcher has started this process, whoever has started the tests."""
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
