"""The report on what is here and what is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pccl_jax.cli import info
from pccl_jax.runtime import native


def test_report_of_this_process() -> None:
    report = info.collect()
    sections = [section for section in report.values() if isinstance(section, dict)]
    assert not [section["error"] for section in sections if "error" in section]
    assert json.loads(json.dumps(report))["processes"]["summary"] == "1, started alone"
    lines = info.render(report).splitlines()
    assert any(line.split() == ["processes", "1,", "started", "alone"] for line in lines)


@pytest.mark.parametrize("state", ["loads", "does not load", "not built"])
def test_gpu_module(state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"gpu_module_that_{state.replace(' ', '_')}"
    if state != "not built":
        text = "" if state == "loads" else "raise ImportError('no libamdhip64.so.7')"
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(native, "MODULES", {"cpu": "pccl_jax._native", "rocm": name})
    native.missing_handlers.cache_clear()
    try:
        report = info.collect()
    finally:
        native.missing_handlers.cache_clear()
        sys.modules.pop(name, None)
    assert report["gpu_modules"]["modules"] == ([name] if state == "loads" else [])
    told = "cannot be loaded (no libamdhip64.so.7)" in report["gpu_modules"]["summary"]
    assert told == (state == "does not load")
    missing = [item["what"] for item in report["missing"]]
    assert (state != "loads") == any(what.startswith("our module for GPUs") for what in missing)
