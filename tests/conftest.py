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
    """Keeps one test in N, by their names."""
    n = config.getoption("sample")
    chosen = [zlib.crc32(item.nodeid.encode()) % n == 0 for item in items]
    if not all(chosen):
        pairs = list(zip(items, chosen, strict=True))
        config.hook.pytest_deselected(items=[item for item, kept in pairs if not kept])
        items[:] = [item for item, kept in pairs if kept]
