"""One process with enough CPU devices for every test: set before anything touches JAX."""

from __future__ import annotations

import os

import jax

DEVICES = 16

# What somebody has tuned on this machine must not decide tests.
os.environ["PCCL_CONFIG_HOME"] = "/nonexistent"
for name in ("PCCL_MODEL", "PCCL_MACHINE", "PCCL_ALGORITHM"):
    os.environ.pop(name, None)

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", DEVICES)
jax.config.update("jax_enable_x64", True)
