"""Programs that need a process of their own: other settings, other devices, a hang."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

PREAMBLE = """
import jax
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", {devices})
import jax.numpy as jnp
import numpy as np
from jax import lax
import pccl_jax
from meshes import algorithms, mesh_of, per_rank
"""


def run_program(
    code: str, *, devices: int = 4, timeout_s: float = 60, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python code, with jax, numpy and the helpers of meshes at hand; it must exit with 0."""
    root = Path(__file__).parent
    path = os.pathsep.join([str(root.parent), str(root), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE.format(devices=devices) + textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": path, **settings},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done
