"""The report on what is here and what is missing."""

from __future__ import annotations

import json

import pytest

from pccl_jax import runtime
from pccl_jax.cli import info


def test_report_of_this_process() -> None:
    report = info.collect()
    sections = [section for section in report.values() if isinstance(section, dict)]
    assert not [section["error"] for section in sections if "error" in section]
    assert json.loads(json.dumps(report))["processes"]["summary"] == "1, started alone"
    lines = info.render(report).splitlines()
    assert any(line.split() == ["processes", "1,", "started", "alone"] for line in lines)


@pytest.mark.parametrize("there", [True, False])
def test_gpu_module(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "pccl_jax.runtime.world" if there else "pccl_jax._not_built"
    monkeypatch.setattr(runtime, "MODULES", {"cpu": "pccl_jax._native", "cuda": name})
    report = info.collect()
    assert report["gpu_modules"]["modules"] == ([name] if there else [])
    missing = [item["what"] for item in report["missing"]]
    assert there != any(what.startswith("our module for GPUs") for what in missing)
