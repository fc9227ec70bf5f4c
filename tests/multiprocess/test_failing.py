"""When a process does not do its part: exceptions on all that can have one, soon, and no hang."""

from __future__ import annotations

from pathlib import Path

import pytest
from mpi_job import Job, launch

TIMEOUT_S = 4.0
#: The path that data takes: shared memory, or messages between emulated nodes.
PATHS = pytest.mark.parametrize("per_node", ["8", "1"], ids=["shared memory", "messages"])
CALL = "all_reduce (sum) of float32[5] over axis 'x' (20 bytes a rank"


def assert_failed(job: Job, step: str, ranks: set[int], *texts: str, within_s: float) -> None:
    """The ranks got an exception with all the texts in time, and nobody wrong data."""
    for rank, outcome in enumerate(job.outcomes(step)):
        if rank not in ranks:
            continue
        assert "Error: " in outcome, f"{step}: process {rank}: {outcome}\n{job.output}"
        assert "wrong data" not in outcome
        for text in texts:
            assert text in outcome, f"{step}: process {rank}: no {text!r} in {outcome}"
    late = [s for s in job.seconds(step) if s > within_s]
    assert not late, f"{step}: {job.seconds(step)}"


@PATHS
def test_processes_that_do_different_things(per_node: str, tmp_path: Path) -> None:
    steps = "shape dtype collective good mesh skip elsewhere stop last_good usable"
    job = launch(
        "mismatch",
        *steps.split(),
        processes=3,
        folder=tmp_path,
        PCCL_TIMEOUT_S=str(TIMEOUT_S),
        PCCL_WARN_S="1",
        PCCL_RANKS_PER_NODE=per_node,
    )
    everybody, at_once, in_time = {0, 1, 2}, TIMEOUT_S - 0.5, TIMEOUT_S + 2
    other = CALL.replace("float32[5]", "float32[6]").replace("20", "24")
    assert_failed(job, "shape", everybody, CALL, other, "process 0", "process 1", within_s=at_once)
    other = CALL.replace("float32", "int32")
    assert_failed(job, "dtype", everybody, CALL, other, "process 0", "process 2", within_s=at_once)
    assert_failed(
        job,
        "collective",
        everybody,
        CALL,
        "all_gather of float32[5]",
        "process 0",
        within_s=at_once,
    )
    assert_failed(job, "mesh", everybody, "all_gather", "another order", within_s=at_once)
    assert_failed(job, "skip", {0, 1}, CALL, "for process 2", within_s=in_time)
    assert_failed(job, "elsewhere", everybody, CALL, "float32[6]", "process 1", within_s=in_time)
    # The one that was stopped learns of it when it goes on, 7 s later.
    assert_failed(job, "stop", everybody, CALL, "for process 1, which is stopped", within_s=14)
    for step in ("good", "last_good", "usable"):
        assert job.outcomes(step) == ["ok"] * 3, job.output
    assert job.returncode == 0, job.output


@PATHS
@pytest.mark.parametrize("moment", ["waiting", "moving"])
def test_a_process_is_killed(moment: str, per_node: str, tmp_path: Path) -> None:
    before = {path.name for path in Path("/dev/shm").glob("*pccl_jax-*")}
    job = launch(
        "killed",
        "2",
        moment,
        "3",
        processes=3,
        folder=tmp_path,
        PCCL_TIMEOUT_S="30",
        PCCL_EXIT_S="2",
        PCCL_RANKS_PER_NODE=per_node,
    )
    ended = job.outcomes("ended")
    assert ended[2] == "-9", job.output
    # Long before the timeout; where data was moving MPI itself may be the one that notices.
    texts = ["process 2 has ended"] if moment == "waiting" else []
    assert_failed(job, "last", {0, 1}, *texts, within_s=15)
    for step in ("usable", "end"):
        assert job.outcomes(step)[:2] == ["ok"] * 2, job.output
    # Neither jax.distributed nor MPI could end without it.
    assert all(int(status) != 0 for status in ended[:2]), job.output
    assert {path.name for path in Path("/dev/shm").glob("*pccl_jax-*")} <= before
