"""One process with enough CPU devices for every test: set before anything touches JAX."""

from __future__ import annotations

import jax

DEVICES = 16

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", DEVICES)
jax.config.update("jax_enable_x64", True)
