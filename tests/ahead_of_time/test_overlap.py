"""Collectives overlap with matrix products in the schedule that XLA makes for a GPU."""

from __future__ import annotations

import importlib
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compute_on import compute_on
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import pccl_jax
from ahead_of_time import hlo
from ahead_of_time.conftest import MeshOf

ROWS, WIDTH, LAYERS = 2048, 4096, 4
EXAMPLES = Path(__file__).parents[2] / "examples"

#: Since this version XLA overlaps what runs on an annotated stream.
OVERLAPS = jax.__version_info__ >= (0, 12)


def abstract(mesh: Mesh, shape: tuple[int, ...], spec: P, dtype: Any = jnp.bfloat16) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))


def fsdp_step(collectives: Any, mesh: Mesh) -> Any:
    """Compiles loss and gradient of layers of split weights, two in each turn of the scan."""

    def loss(shards: Any, x: Any) -> Any:
        def layer(x: Any, shard: Any) -> tuple[Any, None]:
            return jnp.tanh(x @ collectives.all_gather(shard, "x", tiled=True)), None

        layer = jax.checkpoint(layer, prevent_cse=False)
        return jax.lax.scan(layer, x, shards, unroll=2)[0].astype(jnp.float32).sum()

    split = P(None, "x")
    step = jax.shard_map(
        jax.value_and_grad(loss),
        mesh=mesh,
        in_specs=(split, P("x")),
        out_specs=(P(), split),
        check_vma=False,
    )
    shards = abstract(mesh, (LAYERS, WIDTH, WIDTH), split)
    x = abstract(mesh, (mesh.size * ROWS, WIDTH), P("x"))
    return jax.jit(step).lower(shards, x).compile()


def loops(compiled: Any) -> list[list[hlo.Event]]:
    """The computations that gather and multiply: of a step the forward and the backward loop."""
    found = hlo.schedules(compiled.as_text()).values()
    return [events for events in found if {"all_gather", "gemm"} <= words(events)]


def words(events: list[hlo.Event]) -> set[str]:
    return {word for event in events for word in event}


def test_the_next_gather_overlaps_this_product(mesh_of: MeshOf) -> None:
    mesh = mesh_of("1x2x4")
    forward, backward, *_ = map(hlo.hidden, loops(fsdp_step(jax.lax, mesh)))
    assert min(forward["all_gather"], backward["all_gather"]) > 0, "lax itself does not overlap"
    forward, backward = map(hlo.hidden, loops(fsdp_step(pccl_jax, mesh)))
    if OVERLAPS:
        assert forward == Counter(all_gather=1)
        assert backward == Counter(all_gather=1, reduce_scatter=1)
    else:  # docs/gpu.md says so
        assert forward == backward == Counter()


@pytest.mark.skipif(not OVERLAPS, reason="nothing runs beside the call")
def test_scratch_is_not_given_to_what_runs_beside_the_call(mesh_of: MeshOf, tmp_path: Path) -> None:
    """Between the start and the end of the second gather the first product is written."""

    def two_layers(shards: Any, x: Any) -> Any:
        for shard in shards:
            x = x @ pccl_jax.all_gather(shard, "x", tiled=True)
        return x

    mesh = mesh_of("1x1x8")
    step = jax.shard_map(two_layers, mesh=mesh, in_specs=(P(None, "x"), P("x")), out_specs=P("x"))
    shards = abstract(mesh, (2, WIDTH, WIDTH), P(None, "x"))
    x = abstract(mesh, (mesh.size * ROWS, WIDTH), P("x"))
    dump = {"xla_dump_to": str(tmp_path), "xla_dump_hlo_as_text": True}
    compiled = jax.jit(step).lower(shards, x).compile(compiler_options=dump)
    (events,) = loops(compiled)
    assert hlo.hidden(events) == Counter(all_gather=1)
    (report,) = tmp_path.glob("*buffer-assignment.txt")
    buffers = re.findall(
        r"(allocation|value: <\d+ (\S+) @\d+> \(size=(\d+),offset=(\d+)\): (\w+)\[)",
        report.read_text(encoding="utf-8"),
    )
    allocation, scratch, products = 0, [], []
    for whole, name, size, offset, dtype in buffers:
        allocation += whole == "allocation"
        place = (allocation, int(offset or 0), int(offset or 0) + int(size or 0))
        if dtype == "u8":
            scratch.append(place)
        elif "gemm_fusion" in name:
            products.append(place)
    assert (len(scratch), len(products)) == (2, 2)
    for held, begin, end in scratch:
        for other, first, last in products:
            assert held != other or last <= begin or end <= first


def example_step(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The training step of the FSDP example, lowered for ``mesh``."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("fsdp_transformer")
    config = example.Config(4, 256, 4, 64, 128, 1e-3)

    def shards(shapes: dict[str, tuple[int, ...]], *stack: int) -> Any:
        spec = P(*[None] * len(stack), "data")
        padded = {k: -(-math.prod(shape) // mesh.size) * mesh.size for k, shape in shapes.items()}
        return {k: abstract(mesh, (*stack, n), spec, jnp.float32) for k, n in padded.items()}

    weights = {
        "outer": shards(config.outer_shapes()),
        "layers": shards(config.layer_shapes(), config.layers),
    }
    count = abstract(mesh, (), P(), jnp.int32)
    state = {"count": count, "shards": weights, "mean": weights, "square": weights}
    specs = jax.tree.map(lambda leaf: leaf.sharding.spec, state)
    tokens = abstract(mesh, (mesh.size * 4, config.context + 1), P("data"), jnp.int32)
    return example.make_step(pccl_jax, config, mesh, specs, check_vma=True).lower(state, tokens)


def test_the_fsdp_example(mesh_of: MeshOf, monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = Mesh(mesh_of("1x4x4").devices, ("data",))
    compiled = example_step(mesh, monkeypatch).compile()
    made = hlo.calls(compiled.as_text())
    names = Counter(call["label"].split()[0] for call in made)
    # Outer weights 4, a layer's 6, these once more in the backward loop; loss and norm.
    assert names == Counter(all_gather=4 + 2 * 6, reduce_scatter=4 + 6, all_reduce=2)
    for call in made:
        assert call["devices"] == sorted(call["members"]) == list(range(16))
        assert call["processes"] == [device // 4 for device in call["members"]]
        assert call["program"][1] * call["program"][2] == 16
    forward, backward, *_ = map(hlo.hidden, loops(compiled))
    assert (forward["all_gather"] > 0, backward["all_gather"] > 0) == (OVERLAPS, OVERLAPS)


@pytest.mark.skipif(not OVERLAPS, reason="nothing is put on a stream")
def test_a_stream_that_the_program_has_chosen(mesh_of: MeshOf) -> None:
    """XLA has no streams within streams."""

    def total(x: Any) -> Any:
        return pccl_jax.psum(x, "x")

    on_stream = compute_on(
        total, compute_type="gpu_stream:1", out_memory_spaces=jax.memory.Space.Device
    )
    mesh = mesh_of("1x1x8")
    mapped = jax.shard_map(on_stream, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
    text = jax.jit(mapped).lower(abstract(mesh, (64, 128), P("x"))).compile().as_text()
    assert len(hlo.calls(text)) == 1
    assert '_xla_stream_annotation="1"' in text
    assert '_xla_stream_annotation="collective"' not in text
