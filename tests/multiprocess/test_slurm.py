"""The batch script of docs/slurm.md, taken by Slurm itself; skipped where it is not installed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import CARD, Hosts, Unavailable
from mpi_job import CASES, is_open_mpi, launch_by_slurm, what_to_start_with
from slurm import Cluster, slurm_cluster

DOCUMENT = Path(__file__).parents[2] / "docs" / "slurm.md"

#: What the document says to start programs with.
SRUN, MPIEXEC = "srun --mpi=pmix --kill-on-bad-exit=1", "mpiexec -n $SLURM_NTASKS"


@pytest.fixture(scope="module")
def cluster(two_hosts: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        with slurm_cluster(two_hosts, tmp_path_factory.mktemp("slurm")) as cluster:
            yield cluster
    except Unavailable as e:
        pytest.skip(f"no Slurm here: {e}")


def batch_script(launcher: str, program: str) -> str:
    """That of the document, for these hosts."""
    found = re.search(r"```sh\n(#!/bin/bash\n.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None
    script = found[1]
    here = {
        "--nodes=8": "--nodes=2",
        "--ntasks-per-node=4": "--ntasks-per-node=2",
        "--cpus-per-task=16": "--cpus-per-task=1",
        "source .venv/bin/activate": f"export PATH={Path(sys.executable).parent}:$PATH",
        "eth0,eth1": CARD,
        "PCCL_TIMEOUT_S=600": "PCCL_TIMEOUT_S=60",
        f"{SRUN} python train.py": f"{launcher} python {program}",
    }
    for theirs, ours in here.items():
        assert script.count(theirs) == 1, f"not once {theirs} in\n{script}"
        script = script.replace(theirs, ours)
    return script


def launcher_of_this_mpi(cluster: Cluster) -> str:
    """As the document says, two processes a host."""
    if not is_open_mpi():
        assert f"`{MPIEXEC} -ppn 4`" in DOCUMENT.read_text()
        return f"{MPIEXEC} -ppn 2"
    tried = cluster.ask("srun", "-n1", "--mpi=pmix", "true")
    if tried.returncode:
        pytest.skip(f"this Slurm has no pmix: {tried.stderr}")
    return SRUN


def test_the_batch_script(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(
        batch_script(launcher_of_this_mpi(cluster), f"{CASES / 'right.py'} hosts small")
    )
    launch_by_slurm(cluster, script, 4, tmp_path, PCCL_TEST_HOSTS="2").assert_ok()


def test_srun_that_does_not_know_of_mpi(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(batch_script("srun --kill-on-bad-exit=1", str(CASES / "right.py")))
    job = launch_by_slurm(cluster, script, 4, tmp_path)
    assert job.returncode != 0
    assert what_to_start_with() in job.output, job.output
