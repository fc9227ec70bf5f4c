"""Tuning: what is swept, whole runs, files read and written."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command import across_processes, command, not_launched

from pccl_jax.cli import main
from pccl_jax.cli._tune import sweep
from pccl_jax.cli.tune import add_arguments
from pccl_jax.dispatch.learned import read_model
from pccl_jax.dispatch.machine import fingerprint, model_file, short_name
from pccl_jax.errors import ConfigurationError
from pccl_jax.simulate import dump_machine, estimate, load_machine
from pccl_jax.types import Collective

HERE = dict(fingerprint())


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PCCL_CONFIG_HOME", str(tmp_path / "configuration"))
    not_launched(monkeypatch)
    return tmp_path / "configuration"


def tune(*options: str, processes: int | None = None) -> subprocess.CompletedProcess[str]:
    return command("tune", *options, processes=processes)


def parsed(*options: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(options)


def bench_file(path: Path, machine: dict[str, Any] = HERE, sizes: Sequence[int] = ()) -> Path:
    """ring is the best below 64 KiB, rec above, xla never."""
    rows = []
    for nbytes in sizes or [1 << e for e in range(8, 25)]:
        ring, rec = (10.0, 20.0) if nbytes < 1 << 16 else (20.0, 10.0)
        for name, median in (("ring", ring), ("rec", rec)):
            row = {"collective": "all_reduce", "dtype": "float32", "bytes": nbytes, "ranks": 4}
            row |= {"nodes": 1, "ranks_per_process": 4, "against": "lax", "rounds": 10}
            row |= {"contender": f"pccl:{name}", "algorithm": name}
            row |= {"baseline": figures(50.0), "measured": figures(median)}
            rows.append(row)
    document = {"schema": "pccl_jax.bench", "version": 2, "machine": machine, "samples": rows}
    path.write_text(json.dumps(document))
    return path


def figures(median: float) -> dict[str, float]:
    return {"p25_us": median * 0.99, "median_us": median, "p75_us": median * 1.01}


def test_the_sweep_of_one_process() -> None:
    made = sweep.plans(parsed("--ranks-per-node", "2"), 1)
    assert [(plan.devices, plan.groups, plan.ranks_per_node) for plan in made] == [
        (2, (2,), None), (4, (4,), None), (8, (8,), None), (4, (4,), 2), (8, (8,), 2),
    ]  # fmt: skip
    sizes = made[0].sizes
    assert (min(sizes), max(sizes)) == (256, 64 << 20)
    assert list(sizes) == sorted(set(sizes))
    odd = [size for size in sizes if size & (size - 1)]
    assert len(odd) == len(sizes) // 2
    assert {"ring", "rec", "hier_ring", "hier_rec", "latency", "mpi"} == set(made[0].algorithms)


def test_the_sweep_across_processes_has_every_group() -> None:
    made = sweep.plans(parsed("--devices", "2", "--ranks-per-node", "2,4"), 6)
    assert [(plan.groups, plan.ranks_per_node) for plan in made] == [
        ((2, 3, 4, 6, 12), None), ((4, 6, 12), 2), ((12,), 4),
    ]  # fmt: skip
    (chosen,) = sweep.plans(parsed("--ranks", "3,5"), 6)
    assert chosen.groups == (3,)


@pytest.mark.parametrize(("options", "processes"), [(["--devices", "1"], 1), (["--ranks", "5"], 6)])
def test_nothing_to_measure(options: list[str], processes: int) -> None:
    with pytest.raises(ConfigurationError, match="nothing to measure"):
        sweep.plans(parsed(*options), processes)


def test_a_quick_run_writes_a_model_that_programs_use(folder: Path, tmp_path: Path) -> None:
    picture = tmp_path / "map.png"
    done = tune("--quick", "--devices", "2", "--collectives", "all_reduce", "--plot", str(picture))
    assert done.returncode == 0, done.stderr
    assert "[4/4]" in done.stderr
    assert "all_reduce: what was best (rows) and what was chosen (columns)" in done.stdout
    path = folder / f"model-{short_name(HERE)}.json"
    assert f"The model is in {path}; programs on this machine use it" in done.stdout
    made = read_model(path)
    assert dict(made.machine) == HERE
    assert made.svms["all_reduce"].quality["points"] == 4
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert sorted(file.name for file in folder.iterdir()) == [
        f"bench-{short_name(HERE)}.json", f"machine-{short_name(HERE)}.json", path.name,
    ]  # fmt: skip
    measured, output = folder / f"bench-{short_name(HERE)}.json", tmp_path / "again.json"
    again = tune("--from", str(measured), "--output", str(output))
    assert again.returncode == 0, again.stderr
    assert read_model(output).digest == made.digest


def test_fitting_to_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = bench_file(tmp_path / "a.json", sizes=[1 << e for e in range(8, 16)])
    large = bench_file(tmp_path / "b.json", sizes=[1 << e for e in range(16, 25)])
    output = tmp_path / "out.json"
    assert main(["tune", "--from", str(small), str(large), "--output", str(output)]) == 0
    shown = capsys.readouterr()
    assert f"PCCL_MODEL={output} makes a program use it" in shown.out
    svm = read_model(output).svms["all_reduce"]
    assert set(svm.classes) == {"rec", "ring"}
    assert svm.quality["accuracy"] >= 0.8
    (summary,) = [line for line in shown.out.splitlines() if line.startswith("all_reduce  ")]
    assert summary.split()[3] == f"{svm.quality['accuracy']:.1%}"
    assert not model_file().exists()
    assert [file.name for file in tmp_path.glob(".*")] == []


def test_one_size_is_too_few_to_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = bench_file(tmp_path / "a.json", sizes=[4096])
    assert main(["tune", "--from", str(file), "--output", str(tmp_path / "out.json")]) == 0
    assert "nothing is known of the quality: all_reduce" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "not a file of `pccl-jax bench --json`"),
        ("[" * 100_000, "cannot be read as JSON"),
        (None, "cannot be read as JSON"),
    ],
)
def test_wrong_files_change_nothing(
    text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, wrong = tmp_path / "out.json", tmp_path / "wrong.json"
    output.write_text("as it was")
    if text is not None:
        wrong.write_text(text)
    good = bench_file(tmp_path / "good.json")
    assert main(["tune", "--from", str(good), str(wrong), "--output", str(output)]) == 1
    assert message in capsys.readouterr().err
    assert output.read_text() == "as it was"


def test_files_of_two_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [bench_file(tmp_path / "a.json"), bench_file(tmp_path / "b.json", HERE | {"cores": 0})]
    assert main(["tune", "--from", *map(str, files)]) == 1
    assert "was measured on another machine" in capsys.readouterr().err


def test_what_is_of_another_machine_is_written_as_that_machines(
    folder: Path, tmp_path: Path
) -> None:
    other = HERE | {"cores": 4711}
    assert main(["tune", "--from", str(bench_file(tmp_path / "a.json", other))]) == 0
    assert sorted(file.name for file in folder.iterdir()) == [
        f"machine-{short_name(other)}.json", f"model-{short_name(other)}.json",
    ]  # fmt: skip


def test_nothing_to_learn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.json"
    document = json.loads(bench_file(file).read_text())
    file.write_text(json.dumps(document | {"samples": []}))
    assert main(["tune", "--from", str(file)]) == 1
    assert "nothing to learn" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = bench_file(tmp_path / "a.json")
    monkeypatch.setenv("PCCL_CONFIG_HOME", str(file / "no folder"))
    assert main(["tune", "--from", str(file)]) == 1
    assert "give another --output" in capsys.readouterr().err


def test_without_scikit_learn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.svm", None)
    monkeypatch.delitem(sys.modules, "pccl_jax.dispatch.training", raising=False)
    assert main(["tune", "--quick"]) == 1
    assert "pip install 'pccl_jax[tune]'" in capsys.readouterr().err


@across_processes
def test_under_mpiexec(folder: Path) -> None:
    options = ["--quick", "--max-time", "0.1", "--collectives", "all_gather"]
    options += ["--sizes", "1KiB,64KiB"]
    done = tune(*options, "--ranks-per-node", "1", processes=2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("The model is in") == 1
    svm = read_model(folder / f"model-{short_name(HERE)}.json").svms["all_gather"]
    assert svm.quality["points"] == 4
    measured = json.loads((folder / f"bench-{short_name(HERE)}.json").read_text())["samples"]
    assert {s["nodes"] for s in measured} == {1, 2}
    assert "mpi" in {s["algorithm"] for s in measured}


def test_figures_of_the_cost_model_are_written(tmp_path: Path) -> None:
    """Small messages took 10 us, a quarter of what ``host`` would have them take."""
    output = tmp_path / "my.json"
    bench = bench_file(tmp_path / "bench.json")
    assert main(["tune", "--from", str(bench), "--output", str(output)]) == 0
    fitted = load_machine(tmp_path / "my.machine.json")
    host = load_machine("host")
    assert fitted.name.startswith("tuned_")
    times = [estimate(Collective.ALL_REDUCE, "ring", 256, 1, 4, m) for m in (fitted, host)]
    assert 10e-6 < times[0] < 0.85 * times[1]


def test_simulated_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = json.loads(dump_machine(load_machine("frontier"))) | {"nodes": 3, "ranks_per_node": 2}
    (tmp_path / "small.json").write_text(json.dumps(whole))
    output = tmp_path / "my.json"
    assert main(["tune", "--simulate", str(tmp_path / "small.json"), "--output", str(output)]) == 0
    model = read_model(output)
    assert model.simulated
    assert set(model.svms) == {collective.label for collective in Collective}
    assert not (tmp_path / "my.machine.json").exists()
    assert main(["tune", "--simulate", "frontier", "--from", str(output)]) == 1
    assert "two sources: give one of them" in capsys.readouterr().err
