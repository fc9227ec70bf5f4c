#!/usr/bin/env python
"""Checks pccl_jax on a machine that has a GPU; one is enough. Prints a table; minutes.

    python tools/gpu_check.py            everything
    python tools/gpu_check.py --build    first installs this checkout, built for this card only
    python tools/gpu_check.py --only kernels --only mpi

Parts: ``kernels`` (results against numpy), ``bandwidth`` (against a copy on the device, in the
same run), ``nccl`` (one rank, through XLA's communicators where jax has them), ``graph`` (the same
in CUDA graphs), ``mpi`` (four processes share the GPU, messages staged in pinned memory: every
collective, every algorithm). Each runs in processes of its own. The exit status is 0 if all is
well.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RANKS = 4
#: What one part may take, in seconds.
LIMIT_S = 240
WITHOUT_MPI = ": this part wants MPI, pip install 'pccl_jax[mpich]'"
PARTS = ("kernels", "bandwidth", "nccl", "graph", "mpi")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", action="store_true", help="install this checkout first")
    parser.add_argument("--only", action="append", choices=PARTS, help="a part; may be repeated")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        return run_part(options.part)
    if options.build:
        build()
    begin = time.monotonic()
    rows = [row for part in options.only or PARTS for row in results_of(part)]
    print_table(rows)
    print(f"{time.monotonic() - begin:.0f} s")
    return 0 if rows and all(state == "ok" for _, state, _ in rows) else 1


def build() -> None:
    """Installs this checkout with the module for this machine's cards; pip brings what it needs."""
    kind = "PCCL_ROCM" if shutil.which("hipcc") and not shutil.which("nvcc") else "PCCL_CUDA"
    defines = {kind: "ON", f"{kind}_ARCHITECTURES": "native"}
    options = [f"--config-settings=cmake.define.{name}={value}" for name, value in defines.items()]
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--editable", ROOT]
    subprocess.run([*install, *options], check=True)


def command(part: str) -> list[str]:
    one = [sys.executable, str(Path(__file__).resolve()), "--part", part]
    if part != "mpi":
        return one
    mpiexec = Path(sys.executable).with_name("mpiexec")
    return [str(mpiexec if mpiexec.exists() else "mpiexec"), "-n", str(RANKS), *one]


def settings(part: str) -> dict[str, str]:
    """Environment variables of a part."""
    chosen = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_ENABLE_X64": "1"}
    if part == "mpi":
        chosen |= {"PCCL_GPU_TRANSPORT": "mpi", "PCCL_RANKS_PER_NODE": "2", "PCCL_TIMEOUT_S": "60"}
        chosen |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        chosen |= {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    if part == "graph":
        flags = "--xla_gpu_enable_command_buffer=+CUSTOM_CALL --xla_gpu_graph_min_graph_size=1"
        chosen["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    return os.environ | chosen


def results_of(part: str) -> Iterator[tuple[str, str, str]]:
    """The rows of a part: what was checked, ``ok`` or what not, details."""
    print(f"{part} ...", flush=True)
    try:
        status, out, err = output_of(command(part), settings(part))
    except OSError as e:
        yield part, "FAILED", f"{e}{WITHOUT_MPI if part == 'mpi' else ''}"
        return
    rows = [line.split("\t")[1:] for line in out.splitlines() if line.startswith("ROW\t")]
    yield from (tuple(row) for row in rows if len(row) == 3)  # type: ignore[misc]
    if status != 0 or not rows:
        last = err.strip().splitlines()[-1:] or ["no output"]
        ended = f"exit status {status}" if status is not None else f"not done after {LIMIT_S} s"
        yield part, "FAILED", f"{ended}: {last[0]}"
        print(err, file=sys.stderr)


def output_of(command: list[str], env: dict[str, str]) -> tuple[int | None, str, str]:
    """Exit status, stdout and stderr of a command, with all processes that it starts.

    The status is None where they had to be killed after ``LIMIT_S`` seconds.
    """
    with subprocess.Popen(
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=LIMIT_S)
            return process.returncode, out, err
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, *process.communicate()


def print_table(rows: list[tuple[str, str, str]]) -> None:
    width = max((len(name) for name, _, _ in rows), default=0)
    for name, state, detail in rows:
        print(f"{name:{width}}  {state:6}  {detail}")


def run_part(part: str) -> int:
    """Inside a process of the part; prints its rows."""
    sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "kernels")]
    import jax

    try:
        devices = jax.devices("gpu") if part != "mpi" else [None]
    except RuntimeError as e:
        print(f"ROW\t{part}\tFAILED\tno GPU: {str(e).splitlines()[0]}")
        return 0
    from pccl_jax.runtime import gpu_modules

    modules = gpu_modules()
    if None not in modules.values():
        why = "; ".join(filter(None, modules.values())) or "pccl_jax has no module for GPUs"
        print(f"ROW\t{part}\tFAILED\t{why}; --build makes one")
        return 0
    if devices[0] is not None:
        print(f"ROW\t{part}\tok\ton {devices[0].device_kind}, jax {jax.__version__}")
    from gpu_check_parts import kernels, programs

    run = {
        "kernels": kernels.check,
        "bandwidth": kernels.measure,
        "nccl": programs.one_rank,
        "graph": programs.recorded,
        "mpi": programs.many_ranks,
    }[part]
    for name, state, detail in run():
        print(f"ROW\t{name}\t{state}\t{detail}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
