"""Which GPUs share a node. Needs no plugin: devices are described by what JAX tells of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pccl_jax.runtime.places import _host, nodes_of


def gpu(process: int, partition: int, runtime: str = "stream_executor") -> Any:
    client = SimpleNamespace(platform="gpu", _raw_platform="cuda", runtime_type=runtime)
    return SimpleNamespace(
        client=client, platform="gpu", process_index=process, slice_index=partition
    )


def test_processes_of_a_host_are_one_node() -> None:
    assert (
        nodes_of([_host(gpu(process, process // 4)) for process in range(8)]) == (0,) * 4 + (1,) * 4
    )


def test_in_a_description_hosts_are_nodes() -> None:
    described = [gpu(device // 4, 0, "compile_only_runtime") for device in range(8)]
    assert nodes_of([_host(device) for device in described]) == (0,) * 4 + (1,) * 4


def test_nodes_can_be_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCCL_RANKS_PER_NODE", "2")
    assert nodes_of([_host(gpu(0, 0))] * 4) == (0, 0, 1, 1)
