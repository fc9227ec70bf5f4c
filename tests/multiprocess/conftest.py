"""Hosts for tests between hosts."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hosts import Hosts, Unavailable, emulated_hosts
from launching import require_mpi


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    require_mpi()
    if os.geteuid() != 0:
        pytest.skip("only root can emulate hosts")
    try:
        with emulated_hosts(2, tmp_path_factory.mktemp("hosts")) as hosts:
            yield hosts
    except Unavailable as e:
        pytest.skip(f"this machine emulates no hosts: {e}")
