"""Samples: read from the benchmark's files, tabulated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pccl_jax.dispatch.samples import Point, Sample, read_bench, samples_of_bench, tabulate
from pccl_jax.errors import ConfigurationError

FIGURES = {"p25_us": 9.0, "median_us": 10.0, "p75_us": 12.0}
ROW = {
    "collective": "all_reduce",
    "dtype": "float32",
    "bytes": 4092,
    "ranks": 3,
    "nodes": 1,
    "ranks_per_process": 1,
    "against": "gloo",
    "baseline": FIGURES,
    "contender": "pccl:ring",
    "algorithm": "ring",
    "measured": FIGURES | {"median_us": 11.0},
    "rounds": 16,
}


def document(*rows: dict[str, Any]) -> dict[str, Any]:
    machine = {"cpu": "c", "architecture": "a", "cores": 2}
    return {"schema": "pccl_jax.bench", "version": 2, "machine": machine, "samples": list(rows)}


def test_a_row_is_two_samples() -> None:
    point = Point("all_reduce", 4092, 3, 1, 1, "float32")
    found = {sample.algorithm: sample for sample in samples_of_bench(document(ROW))}
    assert set(found) == {"xla", "ring"}
    assert found["ring"] == Sample(point, "ring", 11e-6, 9e-6, 12e-6, 16)
    assert found["xla"].median_s == pytest.approx(10e-6)
    assert found["ring"].uncertainty_s == pytest.approx(1.57 * 3e-6 / 4)


def test_what_is_nobodys_algorithm_is_left_out() -> None:
    rows = [ROW | {"contender": "pccl"}, ROW | {"contender": "mpi", "against": "mpi-pre"}]
    assert {s.algorithm for s in samples_of_bench(document(*rows))} == {"xla"}


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": 0},
        {"ranks": "2"},
        {"ranks": True},
        {"bytes": -8},
        {"collective": "all_to_all"},
        {"measured": {}},
        {"measured": FIGURES | {"median_us": float("nan")}},
        {"measured": FIGURES | {"p25_us": 11.0}},
    ],
)
def test_wrong_rows_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(document(ROW | change)))
    with pytest.raises(ConfigurationError, match="not a file of `pccl-jax bench --json`"):
        read_bench(file)


@pytest.mark.parametrize("text", ["", "[", "{}", "[]", "[" * 100_000, '{"schema": 1}', "null"])
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=r"bench\.json"):
        read_bench(file)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_bench(tmp_path / "nowhere")


def test_a_table_needs_a_choice_and_prefers_more_rounds() -> None:
    point, other = Point("all_gather", 8, 2, 1), Point("all_gather", 16, 2, 1)
    few, many = (Sample(point, "ring", t, t, t, n) for t, n in ((1.0, 4), (2.0, 9)))
    rec = Sample(point, "rec", 3.0, 3.0, 3.0)
    for order in ([few, many, rec], [many, few, rec]):
        assert tabulate([*order, Sample(other, "ring", 1, 1, 1)]) == {
            point: {"ring": many, "rec": rec}
        }
