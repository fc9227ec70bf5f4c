"""Which model is in use: named ones have to be right, found ones must not break a program."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import pytest
from synthetic import everywhere, model

from pccl_jax.dispatch import learned as module
from pccl_jax.dispatch.learned import learned
from pccl_jax.dispatch.machine import configuration_folder, fingerprint, model_file
from pccl_jax.dispatch.model import LARGEST_FILE, Model
from pccl_jax.dispatch.policy import describe
from pccl_jax.errors import ConfigurationError

GOOD = model(all_reduce=everywhere("ring"))
OTHER = Model(dict(fingerprint()) | {"cores": 4711}, False, {}, GOOD.svms)
SIMULATED = Model({"name": "moon"}, True, {}, GOOD.svms)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration folder of the test's own, and no memory of others."""
    monkeypatch.setenv("PCCL_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("PCCL_MODEL", raising=False)
    return tmp_path


def test_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCCL_CONFIG_HOME", "/a")
    assert configuration_folder() == Path("/a")
    monkeypatch.delenv("PCCL_CONFIG_HOME")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/b")
    assert configuration_folder() == Path("/b/pccl_jax")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/c")
    assert configuration_folder() == Path("/c/.config/pccl_jax")


def test_nothing_there_is_no_model() -> None:
    assert learned() is None
    assert describe().startswith("no model, machine host ")


def test_the_users_file_is_found_and_can_be_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model_file().write_text(GOOD.to_json())
    use = learned()
    assert use is not None
    assert use.model.digest == GOOD.digest
    assert str(use) == f"{model_file().name} (measured, {GOOD.digest})"
    assert GOOD.digest in describe()
    monkeypatch.setenv("PCCL_MODEL", "none")
    assert learned() is None


def test_a_name_and_a_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "moon.json").write_text(SIMULATED.to_json())
    for name in ("moon", str(folder / "moon.json"), os.path.relpath(folder / "moon.json")):
        monkeypatch.setenv("PCCL_MODEL", name)
        use = learned()
        assert use is not None
        assert use.model.simulated
        assert "simulated" in str(use)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        (GOOD.to_json().replace('"version": 1', '"version": 2'), "has 2 as version, expected 1"),
        (OTHER.to_json(), "cores 4711"),
        ("\ud800", "cannot be read"),
        (" " * (LARGEST_FILE + 1), "has more than 8 MiB"),
    ],
    ids=["malformed", "another version", "another machine", "not UTF-8", "huge"],
)
def test_a_wrong_file(
    text: str,
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = text.encode("utf-8", "surrogatepass")
    model_file().write_bytes(data)
    with caplog.at_level(logging.WARNING, "pccl_jax"):
        assert [learned() for _ in range(3)] == [None] * 3
    (record,) = caplog.records  # once
    assert message in record.getMessage()
    assert "python -m pccl_jax tune" in record.getMessage()
    (folder / "named.json").write_bytes(data)
    monkeypatch.setenv("PCCL_MODEL", "named")
    with pytest.raises(ConfigurationError) as refused:
        learned()
    assert message in str(refused.value)
    assert "PCCL_MODEL=named" in str(refused.value)


@pytest.mark.parametrize("name", ["nobody", "no/where.json", "/dev/zero", "."])
def test_a_name_of_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCCL_MODEL", name)
    with pytest.raises(ConfigurationError, match="PCCL_MODEL="):
        learned()


def test_a_pipe_in_its_place_is_not_waited_for() -> None:
    os.mkfifo(model_file())
    assert learned() is None


def test_many_threads_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model_file().write_text(GOOD.to_json())
    reads, found = [], []
    read = module.read_model
    monkeypatch.setattr(module, "read_model", lambda path: reads.append(path) or read(path))
    threads = [threading.Thread(target=lambda: found.append(learned())) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reads) == 1
    assert len(set(map(id, found))) == 1


def test_the_machine_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    before = describe()
    monkeypatch.setenv("PCCL_MACHINE", "perlmutter")
    assert "machine perlmutter" in describe() != before
    monkeypatch.setenv("PCCL_MACHINE", "moon")
    with pytest.raises(ConfigurationError, match="PCCL_MACHINE=moon"):
        describe()
