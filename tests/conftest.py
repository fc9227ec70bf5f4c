"""One process with enough CPU devices for every test: set before anything touches JAX."""

from __future__ import annotations

import os
import zlib

import jax
import pytest

DEVICES = 16

# What somebody has tuned on this machine must not decide tests.
os.environ["PCCL_CONFIG_HOME"] = "/nonexistent"
for name in ("PCCL_MODEL", "PCCL_MACHINE", "PCCL_ALGORITHM"):
    os.environ.pop(name, None)

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", DEVICES)
jax.config.update("jax_enable_x64", True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sample", type=int, default=1, metavar="N", help="run one test in N, always the same ones"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps one test in N of every function: the first, and others by their names."""
    n = config.getoption("sample")
    functions: set[str] = set()
    kept, left = [], []
    for item in items:
        function = item.nodeid.partition("[")[0]
        chosen = function not in functions or zlib.crc32(item.nodeid.encode()) % n == 0
        functions.add(function)
        (kept if chosen else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept
