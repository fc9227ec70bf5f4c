"""Runs a case of this folder in several processes, under the MPI of this environment.

Every process reports to a file of its own, line by line, so that what it has reported survives
whatever happens to it, and output that mixes with that of others does not matter.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hosts import TRANSPORT, Hosts
from launching import MPIEXEC, OPEN_MPI, require_mpi
from slurm import Cluster

CASES = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Job:
    """What became of a launch: for each process its reports, in order."""

    returncode: int
    output: str
    reports: tuple[tuple[dict[str, Any], ...], ...]

    def outcomes(self, step: str) -> list[str]:
        """By process: what the step came to, "ok" or an exception; "no report" if nothing."""
        return [
            next((r["outcome"] for r in reports if r["step"] == step), "no report")
            for reports in self.reports
        ]

    def seconds(self, step: str) -> list[float]:
        """By process that has reported it: how long the step took."""
        return [r["seconds"] for reports in self.reports for r in reports if r["step"] == step]

    def assert_ok(self, apart_from: Sequence[str] = ()) -> None:
        """Every process has reported something, nothing but "ok", and all have ended well."""
        bad = [
            f"process {rank}: {report['step']}: {report['outcome']}"
            for rank, reports in enumerate(self.reports)
            for report in reports or [{"step": "-", "outcome": "no report"}]
            if report["outcome"] != "ok" and report["step"] not in apart_from
        ]
        assert not bad, "\n".join([*bad, self.output])
        assert self.returncode == 0, f"exit status {self.returncode}\n{self.output}"


@functools.cache
def is_open_mpi() -> bool:
    """Whether the launcher is Open MPI's."""
    done = subprocess.run(
        [MPIEXEC, "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    return "Open MPI" in done.stdout + done.stderr or "prte" in done.stdout


def what_to_start_with() -> str:
    """What ``init`` says to where srun and this MPI do not know of each other."""
    return "start with " + ("srun --mpi=pmix" if is_open_mpi() else "the mpiexec of")


def launch(
    case: str,
    *args: str,
    processes: int,
    folder: Path,
    devices: int = 1,
    options: Sequence[str] = (),
    timeout_s: float = 270,
    **settings: str,
) -> Job:
    """Runs ``cases/<case>.py``; ``options`` go to mpiexec, ``settings`` to the environment."""
    command = [*_on_this_host(processes, options), CASES / f"{case}.py", *args]
    return _run(command, processes, folder, timeout_s, _environment(folder, devices) | settings)


def launch_on_hosts(
    hosts: Hosts, case: str, *args: str, per_host: int, folder: Path, **settings: str
) -> Job:
    """Runs ``cases/<case>.py``, ``per_host`` processes on each host."""
    environment = _environment(folder, 1) | TRANSPORT | settings
    passed = [f"{name}={text}" for name, text in sorted(environment.items())]
    start = hosts.launcher(MPIEXEC, per_host, is_open_mpi())
    program = ["env", *passed, sys.executable, CASES / f"{case}.py", *args]
    return _run([*start, *program], per_host * len(hosts.names), folder, 270, environment)


def launch_by_slurm(
    cluster: Cluster, script: Path, processes: int, folder: Path, **settings: str
) -> Job:
    """Runs a batch script, which starts that many processes."""
    command = cluster.batch(script, folder / "slurm")
    environment = _environment(folder, 1) | TRANSPORT | cluster.environment | settings
    job = _run(command, processes, folder, 270, environment)
    return replace(job, output=job.output + (folder / "slurm").read_text())


def run_python(*args: str | Path, processes: int, folder: Path) -> str:
    """What ``mpiexec python`` prints, given a program or ``-m`` and a module, and its arguments."""
    command = [*_on_this_host(processes), *args]
    job = _run(command, processes, folder, 60, _environment(folder, 1))
    assert job.returncode == 0, job.output
    return job.output


def _on_this_host(processes: int, options: Sequence[str] = ()) -> list[str | Path]:
    return [MPIEXEC, *options, "-n", str(processes), sys.executable]


def _run(
    command: Sequence[str | Path],
    processes: int,
    folder: Path,
    timeout_s: float,
    environment: dict[str, str],
) -> Job:
    require_mpi()
    with (folder / "output").open("w+") as output:
        job = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            job.wait(timeout_s)
        except subprocess.TimeoutExpired:
            output.write(f"\nmpiexec was still running after {timeout_s} s\n")
        finally:
            _end(job, folder)
    files = [folder / f"{rank}.jsonl" for rank in range(processes)]
    return Job(job.returncode, (folder / "output").read_text(), tuple(map(_read, files)))


def _environment(folder: Path, devices: int) -> dict[str, str]:
    own = {
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_PLATFORMS": "cpu",
        "PCCL_CONFIG_HOME": str(folder),
        "PCCL_TEST_FOLDER": str(folder),
        "PCCL_TIMEOUT_S": "60",
        "PYTHONFAULTHANDLER": "1",
    }
    keep = {name: text for name, text in os.environ.items() if not name.startswith("PCCL_")}
    return keep | OPEN_MPI | own


def _end(job: subprocess.Popen[bytes], folder: Path) -> None:
    """Ends the launcher and every process of the job, wherever the launcher has put them."""
    if job.poll() is None:
        os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    mark = f"PCCL_TEST_FOLDER={folder}\0".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue  # it has ended, or is not ours to look at


def _read(path: Path) -> tuple[dict[str, Any], ...]:
    if not path.exists():
        return ()
    lines = path.read_text().split("\n")
    return tuple(json.loads(line) for line in lines[:-1])
