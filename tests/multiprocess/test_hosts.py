"""Between hosts, with nothing shared but a network: right, and failing well."""

from __future__ import annotations

from pathlib import Path

from hosts import Hosts
from mpi_job import launch_on_hosts
from test_failing import assert_failed

TIMEOUT_S = 8.0


def test_right_between_hosts(two_hosts: Hosts, tmp_path: Path) -> None:
    parts = ("hosts", "small", "dimensions", "gradients")
    job = launch_on_hosts(
        two_hosts, "right", *parts, per_host=2, folder=tmp_path, PCCL_TEST_HOSTS="2"
    )
    job.assert_ok()


def test_processes_on_other_hosts_that_do_different_things(
    two_hosts: Hosts, tmp_path: Path
) -> None:
    job = launch_on_hosts(
        two_hosts,
        "mismatch",
        *("shape", "good", "skip", "last_good"),
        per_host=2,
        folder=tmp_path,
        PCCL_TIMEOUT_S=str(TIMEOUT_S),
    )
    everybody = {0, 1, 2, 3}
    assert_failed(job, "shape", everybody, "float32[5]", "float32[6]", within_s=TIMEOUT_S - 0.5)
    # Whoever gives up first, maybe one that waits for another that waits for process 2.
    assert_failed(job, "skip", everybody - {2}, "for process 2", within_s=TIMEOUT_S + 4)
    for step in ("good", "last_good"):
        assert job.outcomes(step) == ["ok"] * 4, job.output
