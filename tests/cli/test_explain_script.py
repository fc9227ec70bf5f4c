"""``pccl-jax explain script.py``, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """\
import sys
import jax, numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 4)
f = jax.shard_map(lambda x: lax.psum(x, "data"), mesh=Mesh(jax.devices(), ("data",)),
                  in_specs=P("data"), out_specs=P())
print("sum", jax.jit(f)(np.arange(4))[0], sys.argv[1:])
"""


def explain(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pccl_jax", "explain", *arguments],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def test_table_follows_what_the_script_prints(script: Path) -> None:
    done = explain(str(script), "--steps", "3")
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first == "sum 6 ['--steps', '3']"
    (row,) = [line for line in rest if "all_reduce sum" in line]
    assert f"{script}:7" in row
    assert "a call of jax.lax" in row


def test_json_alone_on_stdout_and_accelerated(script: Path) -> None:
    done = explain("--json", "--accelerate", str(script))
    assert done.returncode == 0, done.stderr
    (line,) = json.loads(done.stdout)["collectives"]
    assert (line["collective"], line["ranks"], line["runs"]) == ("all_reduce", 4, 1)
    assert line["algorithm"] != "xla"
    assert "sum 6 []" in done.stderr


@pytest.mark.parametrize(
    ("end", "status", "words"),
    [
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no data')", 1, "no data"),
        ("raise RuntimeError('broken')", 1, "RuntimeError: broken"),
    ],
)
def test_a_script_that_fails_is_explained_until_there(
    script: Path, end: str, status: int, words: str
) -> None:
    script.write_text(f"{SCRIPT}{end}\n")
    done = explain(str(script))
    assert done.returncode == status
    assert words in done.stderr
    assert "all_reduce sum" in done.stdout


def test_no_such_script() -> None:
    done = explain("absent.py")
    assert done.returncode == 1
    assert done.stderr == "pccl-jax: no file 'absent.py': name the Python file to run.\n"
