"""Between hosts, with nothing shared but a network: right, and failing well."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Hosts, Unavailable, emulated_hosts
from mpi_job import launch_on_hosts, require_mpi
from test_failing import assert_failed

TIMEOUT_S = 8.0


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    require_mpi()
    if os.geteuid() != 0:
        pytest.skip("only root can emulate hosts")
    try:
        with emulated_hosts(2, tmp_path_factory.mktemp("hosts")) as hosts:
            yield hosts
    except Unavailable as e:
        pytest.skip(f"this machine emulates no hosts: {e}")


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
