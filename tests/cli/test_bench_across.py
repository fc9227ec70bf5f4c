"""The benchmark across processes: what its figures come to, and runs under mpiexec."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command import across_processes, command, not_launched

from pccl_jax.cli import main
from pccl_jax.cli._bench import job
from pccl_jax.cli._bench.contenders import known, lax
from pccl_jax.cli._bench.job import InStep
from pccl_jax.cli._bench.measure import measure
from pccl_jax.cli._bench.peers import mark_stalls, peer_summaries
from pccl_jax.cli._bench.settings import Settings
from pccl_jax.cli._bench.side_by_side import own_time, peer_verdict, side_by_side
from pccl_jax.dispatch.samples import XLA

QUICK_S = 40
KIB, MIB = 1 << 10, 1 << 20

#: Only the second process gets a wrong result.
WRONG_IN_ONE = """
import jax
from jax import lax
from pccl_jax.cli._bench.contenders._jitted import Jitted

class Wrong(Jitted):
    def prepare(self, problem):
        launch = super().prepare(problem)
        def changed():
            (shard,) = launch().addressable_shards
            return [shard.data + jax.process_index()]
        return changed

def contenders(algorithms):
    return [Wrong("wrong", {"all_reduce": lambda x: lax.psum(x, "x")})]
"""

#: It cannot be prepared in the second process.
FAILING_IN_ONE = """
from pccl_jax.runtime.world import joined_world

def contenders(algorithms):
    world = joined_world()
    if world is not None and world.process == 1:
        raise RuntimeError("only here")
    return []
"""


def mpiexec(*options: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    return command("bench", *options, processes=2, path=path)


def sample(nbytes: int, gloo_us: float, ratio: float, **others: Any) -> dict[str, Any]:
    place = {"collective": "all_gather", "dtype": "float32", "ranks": 4, "processes": 4, "nodes": 1}
    figures = {
        "baseline": {"median_us": gloo_us},
        "measured": {"median_us": gloo_us * ratio},
        "ratio": ratio,
        "ratios": {"gloo": ratio, "mpi": 2 * ratio},
    }
    who = {"against": "gloo", "contender": "pccl", "nbytes": nbytes}
    return place | figures | who | others


def test_a_stall_is_a_message_slower_than_a_larger_one() -> None:
    cells = [sample(64 * KIB, 500, 0.5), sample(256 * KIB, 9000, 0.01), sample(MIB, 1000, 0.5)]
    other = sample(4 * MIB, 1, 0.5, collective="all_reduce")
    marked = mark_stalls([*cells, other])
    assert [cell["stalled"] for cell in marked] == [False, True, False, False]
    assert not any(c["stalled"] for c in mark_stalls([c | {"against": "lax"} for c in cells]))


def test_the_summary_leaves_stalls_out_and_keeps_to_its_ranges() -> None:
    cells = [
        sample(8, 100, 5.0),  # below 4 KiB
        sample(4 * KIB, 500, 0.25),
        sample(256 * KIB, 90000, 0.01),  # a stall
        sample(MIB, 1000, 1.0),
        sample(16 * MIB, 4000, 0.5),
    ]
    (summary,) = peer_summaries(mark_stalls(cells))
    assert summary["cells"] == 3
    assert summary["speed_up"] == pytest.approx((4 * 1 * 2) ** (1 / 3), abs=1e-3)
    assert summary["least_speed_up"] == {"value": 1, "collective": "all_gather", "nbytes": MIB}
    assert summary["least_large_speed_up"]["value"] == 2
    assert [cell["nbytes"] for cell in summary["stalled"]] == [256 * KIB]
    mpi = summary["mpi"]
    assert (mpi["value"], mpi["nbytes"], mpi["cells"]) == (2, MIB, 2)
    assert mpi["mean"] == pytest.approx(2**0.5, abs=1e-3)
    assert summary["mpi4jax"] is None
    words = peer_verdict(summary)
    assert words.startswith("pccl, float32, 4 ranks: 2.00x as fast as gloo")
    assert "at most 2.00 (all_gather of 1 MiB)" in words


def test_the_table_has_a_column_for_each_contender() -> None:
    mpi = {"contender": "mpi", "ratios": {"gloo": 0.25, "pccl": 0.5}}
    cells = [sample(4 * KIB, 500, 0.5) | mpi, sample(4 * KIB, 500, 0.5)]
    cells += [sample(MIB, 100, 0.5) | {"ratios": {"gloo": 0.5}}]
    (table,) = side_by_side(mark_stalls(cells))
    assert "| collective | size | gloo us | mpi us | pccl us | pccl/gloo | pccl/mpi |" in table
    assert "| all_gather | 4 KiB | 500* | 250 | 250 | 0.50 | 1.00 |" in table
    assert "| all_gather | 1 MiB | 100 | - | 50.0 | 0.50 | - |" in table
    assert "not in the means" in table


def test_the_table_of_own_times_names_the_pair() -> None:
    figures = {"mpi_us": 2.0, "own_us": 3.0, "launch_us": 99.0, "ratio": 1.5}
    text = own_time([sample(8, 1, 1) | figures], markdown=False)
    assert "all_gather, reduce_scatter (mean)  8 B   float32      4     2.0      3.0" in text


def test_own_time_has_no_cases_of_reduce_scatter() -> None:
    collectives = ("all_gather", "reduce_scatter", "all_reduce")
    settings = Settings(1, collectives, (8, 64), ("float32",), own_time=True, processes=4)
    assert [case.collective for case in settings.cases()] == ["all_gather"] * 2 + ["all_reduce"] * 2
    assert {case.ranks for case in settings.cases()} == {4}


class Comm:
    """A communicator of two processes; the other one is slower and has nothing to say."""

    def Get_size(self) -> int:
        return 2

    def Allgather(self, sent: np.ndarray, received: np.ndarray) -> None:
        received[0], received[1] = sent + 1, sent

    def allgather(self, sent: object) -> list[object]:
        return [None, sent]

    def Barrier(self) -> None:
        pass


def test_the_slowest_process_counts_and_all_know_what_is_wrong() -> None:
    both = InStep(Comm())
    assert both.largest([1.0, 5.0]) == [2.0, 6.0]
    assert both.faults("rank 0 has none") == ["process 1: rank 0 has none"]
    assert both.faults(None) == []


@pytest.mark.parametrize(("process", "root"), [(None, True), (0, True), (1, False)])
def test_one_process_reports_for_all(
    process: int | None, root: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = None if process is None else SimpleNamespace(process=process)
    monkeypatch.setattr(job, "joined_world", lambda: world)
    assert job.is_root() == root


@pytest.mark.parametrize("implementation", ["gloo", "mpi"])
def test_what_lax_uses_is_learned_as_xla(
    implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is MPI: ``mpi`` is what the contender without JAX is called."""
    config = SimpleNamespace(jax_cpu_collectives_implementation=implementation)
    monkeypatch.setattr(lax, "joined_world", lambda: SimpleNamespace(process=0))
    monkeypatch.setattr(lax, "jax", SimpleNamespace(config=config))
    (contender,) = lax.contenders(["auto"])
    assert contender.name in XLA
    assert contender.name not in known()


@pytest.mark.parametrize(("max_time_s", "least", "most"), [(0.0, 4, 6), (0.1, 4, 14), (9, 40, 42)])
def test_the_most_time_ends_the_rounds(max_time_s: float, least: int, most: int) -> None:
    launches = [lambda: time.sleep(0.01)]
    times = measure(launches, InStep(Comm()), repeats=40, min_time_s=0.0, max_time_s=max_time_s)
    assert least <= times.size <= most


@pytest.mark.parametrize("options", [["--contenders", "mpi"], ["--own-time"], ["--against", "mpi"]])
def test_what_needs_several_processes_says_so(
    options: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    not_launched(monkeypatch)
    assert main(["bench", *options]) == 1
    assert "needs several processes: mpiexec -n 2 python" in capsys.readouterr().err


def test_several_numbers_of_devices_need_several_commands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMI_SIZE", "2")
    assert main(["bench", "--devices", "1,2"]) == 1
    assert "--devices 1,2: across processes give one number" in capsys.readouterr().err


@across_processes
def test_quick_run_under_mpiexec(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    start = time.monotonic()
    options = ["--dtypes", "bfloat16,float32", "--sizes", "4KiB", "--algorithms", "auto,mpi"]
    done = mpiexec("--quick", "--max-time", "0.2", *options, "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - start < QUICK_S
    assert done.stdout.count("float32, 2 ranks on 1 node(s), 2 processes") == 1  # by the root
    assert "as fast as gloo in the geometric mean" in done.stdout
    written = json.loads(file.read_text())
    assert written["failures"] == []
    served = {(s["contender"], s["dtype"], s["collective"]) for s in written["samples"]}
    assert {("mpi", "float32", c) for c in ("all_gather", "reduce_scatter", "all_reduce")} <= served
    assert ("mpi-pre", "bfloat16", "all_gather") in served
    assert ("mpi", "bfloat16", "all_reduce") not in served
    assert ("pccl:mpi", "float32", "all_reduce") in served
    assert ("pccl:mpi", "bfloat16", "all_reduce") not in served
    assert {s["algorithm"] for s in written["samples"] if s["contender"] == "pccl"} != {"xla"}


@across_processes
def test_own_time_under_mpiexec() -> None:
    done = mpiexec("--quick", "--own-time", "--sizes", "64")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all_gather, reduce_scatter (mean)") == 1


@across_processes
def test_a_wrong_result_in_one_process_is_everybodys_failure(tmp_path: Path) -> None:
    (tmp_path / "wrong_in_one.py").write_text(WRONG_IN_ONE)
    options = ["--quick", "--sizes", "4KiB", "--collectives", "all_reduce", "--contenders"]
    done = mpiexec(*options, "wrong_in_one,pccl", path=tmp_path)
    assert done.returncode == 1
    failure = "FAILED wrong: all_reduce of 4 KiB float32 on 2 devices: process 1: rank 0 has 1024"
    assert done.stdout.count(failure) == 1


@across_processes
def test_a_process_that_fails_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "failing_contender.py").write_text(FAILING_IN_ONE)
    done = mpiexec("--quick", "--contenders", "failing_contender", path=tmp_path)
    assert done.returncode != 0
    assert "only here" in done.stderr
