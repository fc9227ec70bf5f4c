"""Lowering, compiling, caching, and what a function compiled once is reused for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import serialize_executable
from jax.sharding import PartitionSpec as P
from meshes import mesh_of, per_rank
from processes import run_program

import pccl_jax

X = np.arange(4 * 8, dtype=np.float32).reshape(4, 8)


def body(x: Any) -> Any:
    return pccl_jax.psum(x, "x"), pccl_jax.all_gather(x, "x", tiled=True)


def check(results: Any) -> None:
    total, gathered = results
    np.testing.assert_array_equal(total, np.tile(X.sum(0), (4, 1)))
    np.testing.assert_array_equal(gathered, np.tile(X.reshape(-1), (4, 1)))


def algorithms_of(text: str) -> set[str]:
    return {name for name in pccl_jax.algorithms() if f'algorithm = "{name}"' in text}


def test_ahead_of_time() -> None:
    lowered = per_rank(body, mesh_of(4)).lower(X)
    assert "pccl_collective" in lowered.as_text()
    compiled = lowered.compile()
    for _ in range(3):
        check(compiled(X))


def test_serialised_executable() -> None:
    mesh = mesh_of(4)
    saved = serialize_executable.serialize(per_rank(body, mesh).lower(X).compile())
    devices = list(mesh.devices.flat)
    loaded = serialize_executable.deserialize_and_load(*saved, execution_devices=devices)
    check(loaded(X))


def test_persistent_cache(tmp_path: Path) -> None:
    code = """
        import logging
        hits = []

        class Handler(logging.Handler):
            def emit(self, record):
                if "cache hit" in record.getMessage().lower():
                    hits.append(record.getMessage())

        log = logging.getLogger("jax._src.compiler")
        log.setLevel(logging.DEBUG)
        log.addHandler(Handler())
        log.propagate = False
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        x = np.arange(32.0, dtype=np.float32).reshape(4, 8)
        f = per_rank(lambda x: pccl_jax.psum(x, "x"), mesh_of(4))
        np.testing.assert_array_equal(f(x), np.tile(x.sum(0), (4, 1)))
        print("HITS", sum("jit_body" in hit for hit in hits))
    """
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path)}
    assert "HITS 0" in run_program(code, **cache).stdout
    assert list(tmp_path.iterdir())
    assert "HITS 1" in run_program(code, **cache).stdout


def test_one_function_under_meshes_of_another_device_order() -> None:
    """The program may be shared, so the rank must come from the run."""

    def program(x: Any) -> Any:
        return pccl_jax.all_gather(x * 2, "x", tiled=True) + 10 * pccl_jax.psum(x, "x").sum()

    mapped = jax.jit(jax.shard_map(program, in_specs=P("x"), out_specs=P("x"), check_vma=False))
    x = np.arange(8.0)
    expected = np.tile(x * 2, 4) + 10 * x.sum()
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]):
        mesh = mesh_of(4, order=order)
        with jax.set_mesh(mesh):
            np.testing.assert_array_equal(mapped(x), expected)
        same = per_rank(lambda x: pccl_jax.all_gather(x, "x"), mesh)
        np.testing.assert_array_equal(same(X), np.stack([X] * 4))


def test_shape_polymorphic_traces_are_fresh() -> None:
    f = per_rank(lambda x: pccl_jax.psum(x, "x"), mesh_of(4))
    for size in (1, 5, 8, 5, 1):
        x = np.ones((4, size), np.float32)
        np.testing.assert_array_equal(f(x), 4 * x)


def test_using_traces_again_and_back_again_does_not() -> None:
    traces = []

    def program(x: Any) -> Any:
        traces.append(1)
        return pccl_jax.psum(x, "x")

    f = per_rank(program, mesh_of(4))
    seen = []
    for name in ("ring", "latency", "ring", None):
        with pccl_jax.using(algorithm=name):
            np.testing.assert_array_equal(f(X), np.tile(X.sum(0), (4, 1)))
            seen.append(algorithms_of(f.lower(X).as_text()))
    assert seen == [{"ring"}, {"latency"}, {"ring"}, {"hier_rec"}]
    count = len(traces)
    with pccl_jax.using(algorithm="ring"):
        f(X)
    f(X)
    assert len(traces) == count


def test_who_outranks_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(algorithm: str | None = None) -> str:
        pccl_jax.choices(clear=True)
        per_rank(lambda x: pccl_jax.psum(x, "x", algorithm=algorithm), mesh_of(4)).lower(X)
        (choice,) = pccl_jax.choices()
        return choice.algorithm

    assert chosen() == "hier_rec"
    monkeypatch.setenv("PCCL_ALGORITHM", "rec")
    assert chosen() == "rec"
    with pccl_jax.using(algorithm="ring"):
        assert chosen() == "ring"
        assert chosen("latency") == "latency"
        with pccl_jax.using(algorithm=None):
            assert chosen() == "rec"
        assert chosen("xla") == "xla"


def test_a_preference_holds_where_it_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCCL_ALGORITHM", "latency")
    pccl_jax.choices(clear=True)
    per_rank(body, mesh_of(4)).lower(X)
    assert {c.collective: c.algorithm for c in pccl_jax.choices()} == {
        "all_reduce": "latency",
        "all_gather": "hier_rec",
    }


def test_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCCL_RANKS_PER_NODE", "2")
    pccl_jax.choices(clear=True)
    per_rank(lambda x: pccl_jax.psum_scatter(x, "x", tiled=True), mesh_of(4)).lower(X)
    (choice,) = pccl_jax.choices()
    assert (choice.collective, choice.axis, choice.shape) == ("reduce_scatter", "'x'", (8,))
    assert (choice.dtype, choice.nbytes, choice.ranks, choice.nodes) == ("float32", 32, 4, 2)
    assert "2 x 2 ranks" in str(choice)
    assert pccl_jax.choices(clear=True) == [choice]
    assert pccl_jax.choices() == []


def test_uneven_nodes_take_a_flat_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCCL_RANKS_PER_NODE", "3")
    pccl_jax.choices(clear=True)
    for name in (None, "hier_ring", "hier_rec"):
        f = per_rank(lambda x, name=name: pccl_jax.all_gather(x, "x", algorithm=name), mesh_of(4))
        np.testing.assert_array_equal(f(X), np.stack([X] * 4))
    assert [c.algorithm for c in pccl_jax.choices()] == ["rec", "ring", "rec"]


@pytest.mark.parametrize("per_node", ["1", "2", "4"])
def test_call_sites_differ(monkeypatch: pytest.MonkeyPatch, per_node: str) -> None:
    monkeypatch.setenv("PCCL_RANKS_PER_NODE", per_node)
    text = per_rank(lambda x: [pccl_jax.psum(x + i, "x") for i in range(5)], mesh_of(4)).lower(X)
    lines = [line for line in text.as_text().splitlines() if "pccl_collective" in line]
    sites = {line.split("site = ")[1].split(" ")[0] for line in lines}
    assert len(lines) == len(sites) == 5
