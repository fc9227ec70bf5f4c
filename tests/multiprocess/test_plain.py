"""``comm=``: each process jits a program of its own."""

from __future__ import annotations

import importlib.util
import re
import warnings
from pathlib import Path

import pytest
from mpi_job import Job, launch, run_python
from test_failing import assert_failed

TIMEOUT_S = 3.0
CALL = "all_reduce (sum) of float32[5] over a communicator of 3 processes (20 bytes a rank"


def beside_mpi4jax() -> list[str]:
    """The part that needs mpi4jax, where it is installed."""
    if importlib.util.find_spec("mpi4jax"):
        return ["beside"]
    warnings.warn("mpi4jax is not installed: not tested beside it (make mpi4jax)", stacklevel=2)
    return []


@pytest.mark.filterwarnings("default:mpi4jax is not installed")
@pytest.mark.parametrize(
    ("processes", "per_node", "parts"),
    [
        (
            2,
            "8",
            "types typed dimensions mapped gradients shared order kept devices explained exported",
        ),
        (4, "2", "init algorithms control_flow launches groups fast one_program"),
        (3, "1", "small order kept joined_by_threads"),
    ],
    ids=["one host", "in one program as well", "by messages"],
)
def test_right(processes: int, per_node: str, parts: str, tmp_path: Path) -> None:
    job = launch(
        "plain",
        *parts.split(),
        *beside_mpi4jax(),
        processes=processes,
        devices=1 if "init" in parts else processes,
        folder=tmp_path,
        PCCL_RANKS_PER_NODE=per_node,
    )
    job.assert_ok()


def assert_disagree(job: Job, step: str, *texts: str) -> None:
    """An exception on all, not because the time was over."""
    assert_failed(job, step, {0, 1, 2}, "processes disagree", *texts, within_s=20)
    assert not [outcome for outcome in job.outcomes(step) if "has waited" in outcome]


@pytest.mark.parametrize("per_node", ["8", "1"], ids=["shared memory", "messages"])
def test_processes_that_do_different_things(per_node: str, tmp_path: Path) -> None:
    steps = "shape dtype collective elsewhere library revoked skip good"
    lone = ["refused", "join"] if per_node == "8" else []
    job = launch(
        "plain_failing",
        *steps.split(),
        *lone,
        processes=3,
        folder=tmp_path,
        PCCL_TIMEOUT_S=str(TIMEOUT_S),
        PCCL_WARN_S="0.5",
        PCCL_RANKS_PER_NODE=per_node,
    )
    sixes = CALL.replace("float32[5]", "float32[6]").replace("20", "24")
    assert_disagree(job, "shape", CALL, sixes, "process 1")
    assert_disagree(job, "dtype", CALL, CALL.replace("float32", "int32"), "process 2")
    gather = "all_gather of float32[5]"
    assert_disagree(job, "collective", CALL, gather, "process 0")
    assert_disagree(job, "elsewhere", CALL, gather, "process 2")
    assert_disagree(job, "library", CALL, sixes, "algorithm mpi", "process 2")
    assert_disagree(job, "revoked", "not used any more", "comm.Dup()")
    assert_failed(job, "skip", {0, 1}, CALL, "for process 2", within_s=TIMEOUT_S + 5)
    assert_failed(job, "skip", {2}, "not used any more", CALL, within_s=2 * TIMEOUT_S + 5)
    for step in ("good", *lone):
        assert job.outcomes(step) == ["ok"] * 3, job.output
    # Something has failed, so nobody waits for ever at the end; but all is well there.
    assert job.outcomes("end") == ["ok"] * 3
    assert job.returncode == 0, job.output


def test_the_example(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "plain_jit_mpi.py"
    output = run_python(example, "--samples", "256", processes=4, folder=tmp_path)
    assert "4 process(es) with 64 samples each" in output
    apart = re.search(r"numpy.linalg.solve ([\d.e-]+)", output)
    assert apart is not None, output
    assert float(apart[1]) < 1e-8


def test_a_process_never_comes(tmp_path: Path) -> None:
    """Who has given up still has a thread in MPI, which must not end under it."""
    job = launch(
        "plain_alone",
        processes=3,
        folder=tmp_path,
        PCCL_TIMEOUT_S=str(TIMEOUT_S),
        PCCL_WARN_S="0.5",
        PCCL_EXIT_S="2",
    )
    assert_failed(job, "alone", {0, 1}, "collective over it", within_s=TIMEOUT_S + 5)
    for name in ("together", "end"):
        assert job.outcomes(name) == ["ok"] * 3, job.output
    assert job.outcomes("ended")[:2] == ["1", "1"], job.output


def test_before_and_after_mpi(tmp_path: Path) -> None:
    launch("plain_without_mpi", processes=2, folder=tmp_path).assert_ok()


def test_a_process_is_killed(tmp_path: Path) -> None:
    before = {path.name for path in Path("/dev/shm").glob("*pccl_jax-*")}
    job = launch(
        "plain_killed",
        processes=3,
        folder=tmp_path,
        PCCL_TIMEOUT_S="30",
        PCCL_EXIT_S="2",
        PCCL_RANKS_PER_NODE="1",
    )
    assert job.outcomes("ended")[2] == "-9", job.output
    assert_failed(job, "last", {0, 1}, "process 2 has ended", within_s=15)
    assert job.outcomes("end")[:2] == ["ok"] * 2, job.output
    # By itself, where MPI can end without it, or by ours, where MPI would wait for ever.
    assert set(job.outcomes("ended")[:2]) <= {"0", "1"}, job.output
    assert {path.name for path in Path("/dev/shm").glob("*pccl_jax-*")} <= before
