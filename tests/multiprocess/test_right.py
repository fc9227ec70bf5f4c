"""Collectives between processes give what numpy says, everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from mpi_job import launch


@pytest.mark.parametrize(
    ("processes", "devices", "per_node", "parts"),
    [
        (2, 1, None, "algorithms dtypes meshes dimensions gradients large"),
        (2, 4, "2", "algorithms gradients"),
        (3, 2, None, "algorithms meshes dimensions"),
        (4, 1, "1", "algorithms dtypes dimensions gradients"),
        (4, 2, None, "small meshes gradients"),
        (4, 1, "3", "small meshes"),
        (8, 1, "2", "small gradients"),
        (16, 1, "4", "gradients"),
    ],
)
def test_right_everywhere(
    processes: int, devices: int, per_node: str | None, parts: str, tmp_path: Path
) -> None:
    settings = {"PCCL_RANKS_PER_NODE": per_node} if per_node else {}
    job = launch(
        "right", *parts.split(), processes=processes, devices=devices, folder=tmp_path, **settings
    )
    job.assert_ok()


@pytest.mark.parametrize(("processes", "devices"), [(2, 1), (3, 2)])
def test_reading_the_memory_of_others(processes: int, devices: int, tmp_path: Path) -> None:
    launch(
        "right", "direct", processes=processes, devices=devices, folder=tmp_path, PCCL_CMA_MIB="4"
    ).assert_ok()


@pytest.mark.parametrize("per_node", ["1", "8"])
def test_programs_together(per_node: str, tmp_path: Path) -> None:
    parts = "in_flight threads inner_twice chain lone_programs as_lax other_order"
    job = launch(
        "together", *parts.split(), processes=3, folder=tmp_path, PCCL_RANKS_PER_NODE=per_node
    )
    assert job.outcomes("refused") == ["1"] * 3
    job.assert_ok(apart_from=["refused"])


def test_more_collectives_at_once_than_have_room(tmp_path: Path) -> None:
    launch("together", "crowded", processes=4, folder=tmp_path, PCCL_SHM_MIB="2").assert_ok()


def test_programs_together_with_several_devices_in_a_process(tmp_path: Path) -> None:
    parts = "in_flight inner_twice chain lone_programs"
    launch(
        "together",
        *parts.split(),
        processes=2,
        devices=2,
        folder=tmp_path,
        PCCL_RANKS_PER_NODE="2",
        PCCL_CHECK="1",
    ).assert_ok()
