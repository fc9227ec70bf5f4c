"""Start-up, and the ways in which a program ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from mpi_job import launch, run_python, what_to_start_with

from pccl_jax.errors import ConfigurationError
from pccl_jax.runtime import memory
from pccl_jax.runtime.startup import messages_moving


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").glob("*pccl_jax-*")}


def test_alone_init_touches_nothing() -> None:
    code = """
        import sys, pccl_jax
        pccl_jax.init(); pccl_jax.init()
        from jax._src import xla_bridge
        assert not xla_bridge.backends_are_initialized()
        assert 'mpi4py' not in sys.modules
    """
    import textwrap

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_mpi_is_called_while_others_are_waited_for_outside_of_it() -> None:
    """Else an MPI that sends inside its calls only keeps what they wait for."""

    class Communicator:
        calls = 0

        def Iprobe(self) -> bool:
            self.calls += 1
            return False

    comm = Communicator()
    with messages_moving(comm):
        until = time.monotonic() + 10
        while comm.calls < 3 and time.monotonic() < until:
            time.sleep(0.001)
        assert comm.calls >= 3
    called = comm.calls
    time.sleep(0.02)
    assert comm.calls == called


@pytest.mark.parametrize(
    ("processes", "devices", "steps"),
    [
        (3, 2, ["plain", "pending"]),
        (2, 1, ["distributed_first"]),
        (2, 1, ["unused"]),
        (2, 1, ["same_model"]),
        (2, 1, ["kept"]),
    ],
)
def test_init(processes: int, devices: int, steps: list[str], tmp_path: Path) -> None:
    before = shared_memory()
    job = launch("startup", *steps, processes=processes, devices=devices, folder=tmp_path)
    job.assert_ok()
    assert shared_memory() <= before


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, [1024 << 20]),
        ({"PCCL_KEEP_MIB": "7"}, [7 << 20]),
        ({"PCCL_KEEP_MIB": "0"}, []),
        ({"MALLOC_MMAP_MAX_": "0"}, []),
        ({"GLIBC_TUNABLES": "glibc.malloc.arena_max=2"}, []),
        ({"GLIBC_TUNABLES": "glibc.cpu.hwcaps=AVX2"}, [1024 << 20]),
    ],
)
def test_who_decides_what_the_allocator_keeps(
    settings: dict[str, str], kept: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", settings)
    asked: list[int] = []
    module = SimpleNamespace(keep_freed_memory=asked.append)
    monkeypatch.setattr(memory, "extension", lambda: module)
    memory.keep_freed_memory()
    assert asked == kept


def test_a_threshold_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCCL_CMA_MIB", "off")
    with pytest.raises(ConfigurationError, match="PCCL_CMA_MIB='off' is not a number of MiB"):
        memory.share_memory(None, None, 0)


def test_init_leaves_the_allocator_alone_if_told_to(tmp_path: Path) -> None:
    launch("startup", "kept", processes=2, folder=tmp_path, PCCL_KEEP_MIB="0").assert_ok()


@pytest.mark.parametrize(
    "expected",
    [
        {
            "no_mpi4py": "mpi4py is not installed",
            "other_launcher": "two MPIs are mixed",
            "srun_alone": "{what_to_start_with}",
            "different_settings": "PCCL_CHECK must be equal in all processes",
            "different_models": "in process 1 (",
            "wrong_model_in_one": "process 1: PCCL_MODEL=",
            "different_machines": "machine frontier",
            "device_first": "a device was used before pccl_jax.init()",
        },
        {"low_threads": "MPI_THREAD_MULTIPLE"},
        {"wrong_memory": "process 1: PCCL_KEEP_MIB='much' is not a number of MiB from 0 to 2047"},
    ],
)
def test_init_refuses(expected: dict[str, str], tmp_path: Path) -> None:
    job = launch("startup", *expected, processes=2, folder=tmp_path)
    for step, text in expected.items():
        for outcome in job.outcomes(step):
            assert outcome.startswith("ConfigurationError"), job.output
            assert text.format(what_to_start_with=what_to_start_with()) in outcome


def test_when_one_process_raises_the_others_learn_why_and_all_end(tmp_path: Path) -> None:
    begin = time.monotonic()
    job = launch("startup", "raises", processes=3, folder=tmp_path)
    first, second, third = job.outcomes("raises")
    assert second == "ok"
    for outcome in (first, third):
        assert "process 1 has left the program: LookupError: no such file" in outcome, job.output
    assert job.returncode != 0
    assert time.monotonic() - begin < 40


def test_info_of_several_processes_is_one_report(tmp_path: Path) -> None:
    report = json.loads(
        run_python("-m", "pccl_jax", "info", "--json", processes=2, folder=tmp_path)
    )
    assert report["processes"]["hosts"][0]["processes"] == 2
    assert report["devices"]["processes"] == 2
