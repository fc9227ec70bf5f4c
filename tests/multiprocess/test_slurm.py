"""The batch script of docs/slurm.md, taken by Slurm itself; skipped where it is not installed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import CARD, Hosts, Unavailable
from mpi_job import CASES, is_open_mpi, launch_by_slurm
from slurm import Cluster, slurm_cluster

DOCUMENT = Path(__file__).parents[2] / "docs" / "slurm.md"


@pytest.fixture(scope="module")
def cluster(two_hosts: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        with slurm_cluster(two_hosts, tmp_path_factory.mktemp("slurm")) as cluster:
            yield cluster
    except Unavailable as e:
        pytest.skip(f"no Slurm here: {e}")


def batch_script(**changes: str) -> str:
    """That of the document, for this environment; ``changes`` are patterns and what is to match."""
    found = re.search(r"```sh\n(#!/bin/bash\n.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None
    script = found[1]
    here = {
        r"--nodes=8": "--nodes=2",
        r"--ntasks-per-node=4": "--ntasks-per-node=2",
        r"--cpus-per-task=16": "--cpus-per-task=1",
        r"source \.venv/bin/activate": f"export PATH={Path(sys.executable).parent}:$PATH",
        r"eth0,eth1": CARD,
        r"PCCL_TIMEOUT_S=600": "PCCL_TIMEOUT_S=60",
        r"--mpi=pmi2": "--mpi=pmix" if is_open_mpi() else "--mpi=pmi2",
    }
    for pattern, text in (here | changes).items():
        script, count = re.subn(pattern, text, script)
        assert count == 1, f"{count} times {pattern} in\n{script}"
    return script


def test_the_batch_script(cluster: Cluster, tmp_path: Path) -> None:
    kind = "pmix" if is_open_mpi() else "pmi2"
    tried = cluster.ask("srun", "-n1", f"--mpi={kind}", "true")
    if tried.returncode:
        pytest.skip(f"this Slurm has no {kind}: {tried.stderr}")
    script = tmp_path / "train.sh"
    script.write_text(batch_script(**{"train.py": f"{CASES / 'right.py'} hosts small"}))
    launch_by_slurm(cluster, script, 4, tmp_path, PCCL_TEST_HOSTS="2").assert_ok()


def test_srun_that_does_not_know_of_mpi(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(batch_script(**{r"--mpi=pmi\w+ ": "", "train.py": str(CASES / "right.py")}))
    job = launch_by_slurm(cluster, script, 4, tmp_path)
    assert job.returncode != 0
    assert "start with srun --mpi=pmi" in job.output, job.output
