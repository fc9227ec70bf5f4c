"""The benchmark: its options, its loop, and whole runs in a process of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from command import command

from pccl_jax.cli import main
from pccl_jax.cli._bench.cases import Case, Problem
from pccl_jax.cli._bench.check import count_wrong, mismatch
from pccl_jax.cli._bench.columns import column_tables
from pccl_jax.cli._bench.job import Alone
from pccl_jax.cli._bench.measure import measure, paired
from pccl_jax.cli._bench.plot import plot
from pccl_jax.cli._bench.report import summaries
from pccl_jax.cli._bench.settings import Settings, format_size, parse_size

QUICK_S = 40

#: A contender whose last rank adds up wrongly in one element.
WRONG = """
import jax
from jax import lax
from pccl_jax.cli._bench.contenders._jitted import Jitted

def body(x):
    x = x.at[-1].add(lax.axis_index("x").astype(x.dtype))
    return lax.psum(x, "x")

def contenders(algorithms):
    return [Jitted("wrong", {"all_reduce": body})]
"""


def bench(*options: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    return command("bench", *options, path=path)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("4096", 4096), ("4KiB", 4096), ("1 mib", 1 << 20), ("1.5KiB", 1536), ("2GiB", 2 << 30)],
)
def test_sizes_are_read(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "4KB", "KiB", "-4KiB", "0", "0.3", "4 KiB 1"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("nbytes", "text"), [(4096, "4 KiB"), (64 << 20, "64 MiB"), (1536, "1536 B"), (1, "1 B")]
)
def test_sizes_are_written(nbytes: int, text: str) -> None:
    assert format_size(nbytes) == text
    assert parse_size(text) == nbytes


def test_settings_survive_json() -> None:
    settings = Settings(2, ("all_reduce",), (1, 2), ("float32",), min_time_s=0.5)
    assert Settings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize(
    ("collective", "expected"),
    [("all_reduce", 1.75), ("all_gather", 0.875), ("reduce_scatter", 0.875)],
)
def test_bus_bandwidth_is_that_of_nccl_tests(collective: str, expected: float) -> None:
    assert Case(collective, "float32", 8 * 10**9, 8).busbw_GBps(8.0) == pytest.approx(expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8"])
@pytest.mark.parametrize("ranks", [2, 8, 100])
def test_operands_add_up_exactly(dtype: str, ranks: int) -> None:
    problem = Problem(Case("all_reduce", dtype, 1 << 12, ranks), jax.make_mesh((1,), ("x",)))
    operands = [problem.operand_of(rank) for rank in range(ranks)]
    exact = np.sum([operand.astype(np.float64) for operand in operands], axis=0)
    in_order = operands[0]
    for operand in operands[1:]:
        in_order = in_order + operand
    np.testing.assert_array_equal(in_order.astype(np.float64), exact)
    assert len(np.unique(exact)) > 1


def test_mismatch_names_the_rank_and_the_element() -> None:
    right = [np.zeros(4, np.float32), np.zeros(4, np.float32)]
    wrong = [right[0], np.array([0, 0, 5, 0], np.float32)]
    assert mismatch(right, right) is None
    assert [count_wrong(right, other) for other in (right, wrong, right[:1])] == [0, 1, 8]
    assert "rank 1 has 1 of 4 elements wrong, the first at 2: 5.0" in (mismatch(right, wrong) or "")
    assert "float64[4] instead of float32[4]" in (mismatch(right, [np.zeros(4)] * 2) or "")
    assert "1 shards instead of 2" in (mismatch(right, right[:1]) or "")


class Recorder:
    """A job of two processes, in which the other one is slower and wants more rounds."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def barrier(self) -> None:
        self.events.append("barrier")

    def largest(self, values: Sequence[float]) -> list[float]:
        return [value + 4 for value in values]

    def launch(self, name: str) -> Any:
        return lambda: self.events.append(name)


def test_rounds_alternate_in_order_after_barriers() -> None:
    job = Recorder()
    launches = [job.launch("a"), job.launch("b")]
    times = measure(launches, job, repeats=4, min_time_s=0.0)
    assert times.shape == (2, 8)
    assert (times > 4).all()
    assert job.events[::2] == ["barrier"] * (len(job.events) // 2)
    assert job.events[1::2][-8:] == ["a", "b", "b", "a"] * 2


def test_rounds_go_on_for_the_least_time() -> None:
    times = measure([lambda: time.sleep(0.001)], Alone(), repeats=1, min_time_s=0.1)
    assert 10 <= times.size <= 100


def test_ratios_are_paired() -> None:
    figures = paired(np.array([1.0, 10.0, 2.0]), np.array([2.0, 5.0, 3.0]))
    assert figures == {"ratio": 1.5, "ratio_quartiles": [1.0, 1.75], "rounds": 3}


def test_summary_has_the_geometric_mean_and_the_worst_cell() -> None:
    same = {"contender": "pccl", "dtype": "float32", "ranks": 2, "collective": "all_reduce"}
    same |= {"measured": {"median_us": 1.0}}
    (summary,) = summaries([same | {"ratio": 0.5, "nbytes": 1}, same | {"ratio": 2, "nbytes": 4}])
    assert summary["geometric_mean"] == 1
    assert summary["worst"] == {"ratio": 2, "collective": "all_reduce", "nbytes": 4}
    assert "to_best" not in summary  # there is nothing to choose from


def test_our_own_choice_is_compared_with_the_fastest_algorithm() -> None:
    def cell(nbytes: int, contender: str, median: float, **ratios: float) -> dict[str, Any]:
        same = {"dtype": "float32", "ranks": 2, "collective": "all_reduce", "ratio": 1.0}
        figures = {"measured": {"median_us": median}, "ratios": ratios}
        return same | figures | {"contender": contender, "nbytes": nbytes}

    chosen, *_ = summaries(
        [
            cell(8, "pccl", 9.0, **{"pccl:ring": 1.0, "pccl:rec": 0.5}),
            cell(8, "pccl:ring", 9.0),
            cell(8, "pccl:rec", 18.0),
            cell(16, "pccl", 9.0, **{"pccl:ring": 1.0, "pccl:rec": 4.0}),
            cell(16, "pccl:ring", 9.0),
            cell(16, "pccl:rec", 2.0),
        ]
    )
    assert chosen["contender"] == "pccl"
    assert chosen["to_best"] == 2  # the mean of 1 and 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sizes", "4KB"], "'4KB' is no size; write it like 4096, 4KiB"),
        (["--devices", "0"], "'0' is not a whole number from 1 up"),
        (["--devices", ","], "the list is empty"),
        (["--collectives", "all_to_all"], "unknown collective 'all_to_all'; known are all_gather"),
        (["--dtypes", "float3"], "unknown dtype 'float3'; known are float32"),
        (["--algorithms", "rong"], "unknown algorithm 'rong'; known are auto"),
        (["--against", "nobody"], "no contender 'nobody'"),
        (["--contenders", "json"], "name one of lax, mpi, mpi-pre, mpi4jax, pccl, or"),
        (["--max-time", "-1"], "'-1' is not a number of seconds"),
        (["--min-time", "long"], "'long' is not a number of seconds"),
        (["--json", "/nowhere/at/all.json"], "is not a file in a folder that exists"),
    ],
)
def test_wrong_arguments_say_what_is_right(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["bench", *options])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_quick_run_prints_a_table_and_writes_json(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    start = time.monotonic()
    options = ["--devices", "2", "--algorithms", "auto", "--json", str(file)]
    done = bench("--quick", *options)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - start < QUICK_S
    assert "[6/6]" in done.stderr
    assert "busbw GB/s" in done.stdout
    assert "geometric mean of 6 ratios" in done.stdout
    written = json.loads(file.read_text())
    assert (written["schema"], written["version"], written["failures"]) == ("pccl_jax.bench", 2, [])
    assert {"cpu", "cores", "jax", "python", "date", "load_average"} <= set(written["machine"])
    assert len(written["samples"]) == 6
    for sample in written["samples"]:
        check_sample(sample)


def check_sample(sample: dict[str, Any]) -> None:
    place = {"collective", "dtype", "nbytes", "bytes", "count", "op", "ranks", "nodes", "processes"}
    place |= {"ranks_per_process"}
    who = {"against", "contender", "algorithm", "checked", "rounds"}
    figures = {"baseline", "measured", "ratio", "ratio_quartiles", "ratios", "stalled"}
    assert set(sample) == place | who | figures
    assert (sample["ranks"], sample["checked"], sample["contender"]) == (2, True, "pccl")
    assert sample["algorithm"] in ("hier_rec", "hier_ring", "latency", "rec", "ring", "xla")
    for times in (sample["baseline"], sample["measured"]):
        percents = [times[f"{name}_us"] for name in ("min", "p25", "median", "p75", "p95")]
        assert percents[0] > 0
        assert percents == sorted(percents)
        assert times["algbw_GBps"] >= times["busbw_GBps"] > 0  # two ranks


def test_all_algorithms_groups_and_a_plot(tmp_path: Path) -> None:
    """Everything that one process can run; mpi is left out without a word."""
    picture, file = tmp_path / "out.png", tmp_path / "bench.json"
    options = ["--devices", "4", "--ranks", "2,4", "--collectives", "all_reduce", "--sizes", "1000"]
    outputs = ["--plot", str(picture), "--json", str(file)]
    done = bench("--quick", *options, "--algorithms", "all", *outputs)
    assert done.returncode == 0, done.stderr
    samples = json.loads(file.read_text())["samples"]
    names = ["auto", "ring", "rec", "hier_ring", "hier_rec", "latency", "xla"]
    shown = ["pccl" if name == "auto" else f"pccl:{name}" for name in names]
    assert [(s["contender"], s["ranks"]) for s in samples] == [
        (n, r) for r in (2, 4) for n in shown
    ]
    assert {(s["bytes"], s["count"], s["ranks_per_process"]) for s in samples} == {
        (1000, 250, 2),
        (992, 248, 4),
    }
    assert "float32, 2 ranks on 1 node(s), one process" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_plot_of_nothing_is_not_drawn_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot({"samples": []}, tmp_path / "out.png")
    assert "out.png is not drawn: no contender was timed" in capsys.readouterr().err
    assert not (tmp_path / "out.png").exists()


def test_groups_have_to_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--devices", "4", "--ranks", "3"]) == 1
    assert "4 devices cannot be divided into groups of 3" in capsys.readouterr().err


def test_a_plot_needs_matplotlib(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in ("bench", "tune"):
        assert main([name, "--plot", str(tmp_path / "out.png")]) == 1
        assert "pip install 'pccl_jax[plot]'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["bench", "--plot", str(tmp_path / "out.txt")])
    assert "does not end in one of .png, .pdf, .svg" in capsys.readouterr().err


def row(contender: str, median: float, ratio: float, **others: Any) -> dict[str, Any]:
    """A sample of the document, of 1 MiB on two ranks against lax with 100 us."""
    place = {"collective": "all_gather", "dtype": "float32", "nbytes": 1 << 20, "bytes": 1 << 20}
    place |= {"count": 1 << 18, "op": "none", "ranks": 2, "nodes": 1, "processes": 1}
    times = {"p95_us": 500.0, "algbw_GBps": 2.0, "busbw_GBps": 1.0}
    figures = {"baseline": times | {"median_us": 100.0}, "measured": times | {"median_us": median}}
    who = {"against": "lax", "contender": contender, "checked": True, "ratios": {"lax": ratio}}
    return place | figures | who | others


def test_the_table_marks_the_best_and_compares_with_the_best_baseline() -> None:
    samples = [
        row("pccl:ring", 80.0, 0.8) | {"ratios": {"lax": 0.8, "mpi": 1.6}},
        row("pccl:xla", 60.0, 0.6),
        row("mpi", 50.0, 0.5),
    ]
    wrong = [row("pccl:rec", 1.0, 1.0) | {"wrong": 7}]
    (table,) = column_tables({"samples": samples, "wrong": wrong}, width=1000)
    title, _, names, header, line = table.split("\n")
    assert title == "float32, 2 ranks on 1 node(s), one process"
    assert names.split("|")[1].strip() == "lax"
    assert names.replace("|", " ").split() == ["lax", "pccl:ring", "pccl:xla", "mpi", "pccl:rec"]
    assert header.split()[:5] == ["collective", "bytes", "count", "dtype", "op"]
    cells = [cell.split() for cell in line.split("|")]
    assert cells[0] == ["all_gather", "1048576", "262144", "float32", "none"]
    assert cells[1] == ["100", "500", "2.00", "1.00", "0"]
    assert cells[4] == ["50.0*", "500", "2.00", "1.00", "0"]
    assert cells[5] == ["-", "-", "-", "-", "7"]
    assert cells[6] == ["mpi", "1.60"]
    assert line.count("*") == 1


def test_a_narrow_table_is_cut_between_contenders() -> None:
    samples = [row(name, 50.0, 0.5) for name in ("pccl:ring", "pccl:rec", "pccl:latency")]
    (table,) = column_tables({"samples": samples, "wrong": []}, width=120)
    assert max(map(len, table.splitlines())) <= 120
    assert table.count("collective") == table.count("all_gather") == 5


def test_unchecked_results_are_not_called_right() -> None:
    samples = [row("pccl", 50.0, 0.5) | {"checked": False}]
    (table,) = column_tables({"samples": samples, "wrong": []}, width=1000)
    assert table.count("N/A") == 2


def test_several_algorithms_and_markdown() -> None:
    options = ["--quick", "--devices", "2,3", "--sizes", "4KiB", "--dtypes", "bfloat16"]
    done = bench(*options, "--algorithms", "auto,latency", "--markdown")
    assert done.returncode == 0, done.stderr
    assert "| bfloat16 | size | 2 devices: lax us | pccl us | ratio | 3 devices" in done.stdout
    assert "pccl:latency us" in done.stdout
    assert "pccl:latency, bfloat16, 2 devices: geometric mean of 1 ratios" in done.stdout


def test_lowering_is_measured() -> None:
    done = bench("--lowering", "--devices", "2", "--collectives", "all_reduce")
    assert done.returncode == 0, done.stderr
    assert "Time to trace and lower, median of 21 functions" in done.stdout
    assert "extra ms" in done.stdout


def test_a_wrong_result_is_found_and_named(tmp_path: Path) -> None:
    (tmp_path / "wrong_contender.py").write_text(WRONG)
    options = ["--quick", "--devices", "2", "--sizes", "4KiB", "--algorithms", "auto"]
    done = bench(*options, "--contenders", "pccl,wrong_contender", path=tmp_path)
    assert done.returncode == 1
    assert re.search(r"\| +- +- +- +- +2$", done.stdout, re.MULTILINE)  # one on each rank
    failure = "FAILED wrong: all_reduce of 4 KiB float32 on 2 devices: rank 0 has 1 of 1024"
    assert failure in done.stderr
    assert failure in done.stdout
    assert "geometric mean of 3 ratios" in done.stdout  # pccl's own are still there


def test_a_baseline_that_is_wrong_is_named_and_not_who_is_right(tmp_path: Path) -> None:
    (tmp_path / "wrong_contender.py").write_text(WRONG)
    options = ["--quick", "--devices", "2", "--sizes", "4KiB", "--collectives", "all_reduce"]
    options += ["--algorithms", "auto", "--contenders", "pccl", "--against", "wrong_contender"]
    done = bench(*options, path=tmp_path)
    assert done.returncode == 1
    assert "FAILED wrong: all_reduce of 4 KiB" in done.stderr
    assert "FAILED pccl" not in done.stderr
    assert re.search(r"\d +2  \| .*\d +0 +\| ", done.stdout)  # wrong elements of both


def test_a_worker_that_dies_is_reported(tmp_path: Path) -> None:
    dies = (
        "def contenders(algorithms):\n    import jax\n    if jax.config.jax_num_cpu_devices == 2:"
    )
    (tmp_path / "dying_contender.py").write_text(
        f"{dies}\n        raise SystemExit(7)\n    return []\n"
    )
    done = bench("--quick", "--devices", "2", "--contenders", "dying_contender", path=tmp_path)
    assert done.returncode == 1
    assert "the process that measures 2 devices ended with exit status 7" in done.stdout
