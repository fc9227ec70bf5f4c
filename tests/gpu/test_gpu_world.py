"""What start-up tells the GPU module."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import pytest

from pccl_jax.errors import ConfigurationError
from pccl_jax.runtime import gpu_world, handlers, native, register_handlers


class Store:
    """The key-value store of jax.distributed, without anybody to wait for."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.waits_ms: list[int] = []

    def key_value_set_bytes(self, key: str, value: bytes) -> None:
        self.values[key] = value

    def blocking_key_value_get_bytes(self, key: str, timeout_ms: int) -> bytes:
        self.waits_ms.append(timeout_ms)
        return self.values[key]


def test_ids_go_through_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    monkeypatch.setattr(gpu_world, "distributed_client", lambda: store)
    monkeypatch.setenv("PCCL_TIMEOUT_S", "7.5")
    unique_id = bytes(range(128))
    assert gpu_world.exchange_id("a", unique_id) == unique_id
    assert gpu_world.exchange_id("a", None) == unique_id
    assert store.waits_ms == [7500]


def test_a_first_member_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    class Empty(Store):
        def blocking_key_value_get_bytes(self, key: str, timeout_ms: int) -> bytes:
            raise jax.errors.JaxRuntimeError("DEADLINE_EXCEEDED")

    monkeypatch.setattr(gpu_world, "distributed_client", Empty)
    monkeypatch.setenv("PCCL_TIMEOUT_S", "7.5")
    with pytest.raises(RuntimeError, match=r"within 7\.5 s \(PCCL_TIMEOUT_S\).*DEADLINE_EXCEEDED"):
        gpu_world.exchange_id("a", None)


def test_without_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_world, "distributed_client", lambda: None)
    with pytest.raises(RuntimeError, match=r"jax\.distributed was not initialised"):
        gpu_world.exchange_id("a", None)


def test_owners_count_devices_within_processes() -> None:
    places = [(5, 1), (2, 0), (3, 1), (0, 0), (9, 2)]
    devices = [SimpleNamespace(id=i, process_index=p) for i, p in places]
    assert gpu_world.owners(devices) == {0: (0, 0), 2: (0, 1), 3: (1, 0), 5: (1, 1), 9: (2, 0)}


def test_whoever_registers_handlers_tells_them_the_world_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that only loads compiled programs lowers none."""
    done: list[str] = []
    monkeypatch.setattr(handlers, "register_module", lambda p: done.append(f"register {p}"))
    monkeypatch.setattr(handlers, "connect_gpus", lambda p: done.append(f"connect {p}"))
    register_handlers("cuda")
    register_handlers()
    assert done == ["register cuda", "connect cuda", "register cpu"]


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_no_handlers_for_a_platform(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setitem(native.MODULES, "cuda", "pccl_jax._no_such_module")
    native.missing_handlers.cache_clear()
    with pytest.raises(ConfigurationError, match=f"{platform}"):
        register_handlers(platform)
    native.missing_handlers.cache_clear()


class Module:
    """Remembers what it was told."""

    def join(self, **told: object) -> str:
        self.told = told
        return ""


def test_a_process_alone() -> None:
    """There are no GPUs here: nothing but where NCCL may be."""
    module = Module()
    assert gpu_world.join_gpus(module) == ""
    assert module.told["ordinals"] == {}
    assert module.told["exchange_id"] is None
    assert module.told["mpi"] is None
