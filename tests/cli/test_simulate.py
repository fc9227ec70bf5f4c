"""The command ``simulate``: options, tables, files, and what it says to wrong input."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pccl_jax.cli import main
from pccl_jax.cli._simulate.arguments import counts, sizes
from pccl_jax.simulate import estimate, load_machine, simulate
from pccl_jax.types import Collective

SMALL = ("--bytes", "1M,4M", "--ranks", "8..32")


def run(*options: str) -> int:
    return main(["simulate", *options])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("16M..64M", (16 << 20, 32 << 20, 64 << 20)),
        ("4096,4KiB,1k", (4096, 1024)),
        ("1G", (1 << 30,)),
        ("3..20", (3, 6, 12)),
    ],
)
def test_sizes(text: str, values: tuple[int, ...]) -> None:
    assert sizes(text) == values


@pytest.mark.parametrize("text", ["", ",", "16X", "4M..1M", "0", "-1", "1..", "..4", "a..b"])
@pytest.mark.parametrize("parse", [sizes, counts])
def test_malformed_ranges(parse: Any, text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse(text)


def test_table_marks_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--machine", "frontier", "--collective", "all_gather", *SMALL) == 0
    out, err = capsys.readouterr()
    header, first = out.splitlines()[2:4]
    assert header.split()[:5] == ["bytes", "ranks", "ring", "us", "rec"]
    assert "nccl / best" in header
    assert first.split()[:3] == ["1", "MiB", "8"]
    assert all(line.count("*") == 1 for line in out.splitlines()[3:9])
    assert "all_gather, 32 ranks" in err


def test_map(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--machine", "frontier", "--collective", "all_gather", "--map")
    options += ("--algorithms", "hier_ring,hier_rec,nccl")
    assert run(*options, "--bytes", "1M,1G", "--ranks", "2048") == 0
    title, _, header, row, _, note = capsys.readouterr().out.splitlines()
    assert title == "all_gather on frontier"
    assert header.split() == ["ranks", "1", "MiB", "1", "GiB"]
    ranks, first, gain, second, _ = row.split()
    assert (ranks, first, second) == ("2048", "hier_rec", "hier_ring")
    assert float(gain) > 10
    assert "message by message" in note


def test_json_has_what_the_library_says(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    assert run("--machine", "cluster", *SMALL, "--ranks-per-node", "4", "--json", str(path)) == 0
    document = json.loads(path.read_text())
    assert (document["schema"], document["machine"]) == ("pccl_jax.simulate", "cluster")
    cluster = load_machine("cluster")
    names = set()
    for sample in document["samples"]:
        names.add(sample["algorithm"])
        time_of = estimate if sample["algorithm"] == "mpi" else _seconds
        at = (Collective[sample["collective"].upper()], sample["algorithm"], sample["nbytes"])
        seconds = time_of(*at, sample["nodes"], sample["local"], cluster)
        assert sample["time_us"] == pytest.approx(seconds * 1e6)
        assert sample["ranks"] == sample["nodes"] * sample["local"]
    assert names >= {"ring", "rec", "hier_ring", "hier_rec", "latency", "mpi"}
    assert len(document["samples"]) >= 2 * 3 * (5 + 5 + 6)


def _seconds(*at: Any) -> float:
    return simulate(*at).seconds


def test_closed_form(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    options = ("--algorithms", "rec", "--collective", "all_gather", "--ranks", "64")
    assert run(*options, "--bytes", "1M", "--closed-form", "--json", str(path)) == 0
    (sample,) = json.loads(path.read_text())["samples"]
    seconds = estimate(Collective.ALL_GATHER, "rec", 1 << 20, 16, 4, load_machine("perlmutter"))
    assert sample["time_us"] == pytest.approx(seconds * 1e6)


def test_machines_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.json"
    path.write_text("{}")
    assert run("--machine", str(path)) == 1
    assert "schema is missing" in capsys.readouterr().err


def test_list_of_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--list-machines") == 0
    assert "frontier" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--ranks", "6"), "not a whole number of nodes of 4 ranks"),
        (("--ranks", "8192"), "needs 2048 nodes; perlmutter has 1792"),
        (("--ranks-per-node", "8"), "a node of perlmutter has 4"),
        (("--machine", "summit"), "unknown machine 'summit'"),
        (("--machine", "host", "--ranks", "32", "--algorithms", "nccl"), "no figures for NCCL"),
    ],
)
def test_refusals(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*options) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [("--collective", "all"), ("--algorithms", "rign"), ("--json", "/nowhere/out.json")]
)
def test_usage_errors(options: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit):
        run(*options)


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name, ranks in (("out.png", "8..32"), ("out.svg", "16")):
        path = tmp_path / name
        assert run("--bytes", "1M..64M", "--ranks", ranks, "--plot", str(path)) == 0
        assert path.stat().st_size > 5000


def test_plot_of_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        run(*SMALL, "--plot", str(tmp_path / "out.xyz"))


def test_plot_without_matplotlib(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said before anything is simulated."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run("--plot", str(tmp_path / "out.png")) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "pip install 'pccl_jax[plot]'" in err
