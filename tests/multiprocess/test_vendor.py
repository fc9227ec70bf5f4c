"""Algorithm `mpi`: the MPI library's own collective."""

from __future__ import annotations

from pathlib import Path

import pytest
from mpi_job import launch

RIGHT = ("sizes", "again", "dtypes", "meshes", "dimensions", "gradients", "refusals")


@pytest.mark.parametrize("processes", [2, 4])
def test_gives_what_numpy_gives(tmp_path: Path, processes: int) -> None:
    launch("vendor", *RIGHT, processes=processes, folder=tmp_path, timeout_s=240).assert_ok()


@pytest.mark.parametrize("per_node", ["1", "2", "3"])
def test_nodes_do_not_matter(tmp_path: Path, per_node: str) -> None:
    job = launch(
        "vendor", "sizes", "meshes", processes=4, folder=tmp_path, PCCL_RANKS_PER_NODE=per_node
    )
    job.assert_ok()


def test_one_rank_per_process_in_each_group(tmp_path: Path) -> None:
    launch("vendor", "several_devices", processes=2, devices=2, folder=tmp_path).assert_ok()


@pytest.mark.parametrize("processes", [2, 4])
def test_other_shapes_are_an_error_everywhere(tmp_path: Path, processes: int) -> None:
    job = launch("vendor", "mismatch", processes=processes, folder=tmp_path)
    for outcome in job.outcomes("mismatch"):
        assert "processes disagree" in outcome
        assert "float32[4]" in outcome
        assert "float32[5]" in outcome


def test_who_does_not_come_is_named(tmp_path: Path) -> None:
    job = launch("vendor", "skipped", processes=2, folder=tmp_path, PCCL_TIMEOUT_S="4")
    waited, skipped = job.outcomes("skipped")
    assert skipped == "ok"
    assert "algorithm mpi" in waited
    assert "process 0 has waited 4" in waited
    assert "for process 1" in waited


def test_checked_before_every_execution(tmp_path: Path) -> None:
    job = launch("vendor", "again", processes=2, folder=tmp_path, PCCL_CHECK="1")
    job.assert_ok()
