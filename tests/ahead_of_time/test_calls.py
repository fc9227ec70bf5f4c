"""What a program for GPUs holds: targets, attributes, groups; also of what AD and vmap make."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import pccl_jax
from ahead_of_time import hlo
from ahead_of_time.conftest import MeshOf
from pccl_jax import schedule
from pccl_jax._jax_compat import requires_devices
from pccl_jax._jax_compat.platforms import _dispatch
from pccl_jax.primitives import all_reduce_p
from pccl_jax.primitives.gpu import gpu_scratch_bytes
from pccl_jax.runtime import MODULES, TARGET, places
from pccl_jax.runtime.native import missing_handlers
from pccl_jax.types import Collective

COLLECTIVES = {name.label: name for name in Collective}


def lowered(
    function: Callable[..., Any],
    mesh: Mesh,
    shape: tuple[int, ...],
    dtype: Any = jnp.float32,
    platforms: tuple[str, ...] | None = None,
) -> Any:
    """``function`` of one array for every device, lowered for ``mesh``."""
    over_all = P(mesh.axis_names)

    def body(x: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf[None], function(x[0]))

    mapped = jax.shard_map(body, mesh=mesh, in_specs=over_all, out_specs=over_all, check_vma=False)
    x = jax.ShapeDtypeStruct((mesh.size, *shape), dtype, sharding=NamedSharding(mesh, over_all))
    return jax.jit(mapped).trace(x).lower(lowering_platforms=platforms)


def calls(function: Callable[..., Any], mesh: Mesh, *args: Any) -> list[dict[str, Any]]:
    return hlo.calls(lowered(function, mesh, *args).as_text())


def names(found: list[dict[str, Any]]) -> list[str]:
    return sorted(call["label"].split()[0] for call in found)


def all_three(x: Any) -> Any:
    return (
        pccl_jax.all_gather(x, "x", tiled=True),
        pccl_jax.psum(x, "x"),
        pccl_jax.psum_scatter(x, "x", tiled=True),
    )


@pytest.mark.parametrize(
    ("topology", "nodes", "local"), [("1x1x8", 1, 8), ("1x2x4", 2, 4), ("1x4x4", 4, 4)]
)
def test_compiled_calls(
    topology: str, nodes: int, local: int, gpus: Callable[[str], list[Any]]
) -> None:
    """XLA has instantiated the handlers, so names and types of the attributes are theirs."""
    devices, n = gpus(topology), nodes * local
    mesh = Mesh(np.array(devices), ("x",))
    with pccl_jax.using(algorithm="hier_rec"):
        compiled = lowered(all_three, mesh, (n, 24)).compile()
    found = hlo.calls(compiled.as_text())
    assert names(found) == sorted(COLLECTIVES)
    for call in found:
        collective = COLLECTIVES[call["label"].split()[0]]
        built = schedule.build("hier_rec", collective, nodes, local)
        assert (call["collective"], call["op"], call["rows"]) == (collective, 0, 1)
        assert call["algorithm"] == "hier_rec"
        assert call["program"] == schedule.encode(built).tolist()
        assert call["members"] == call["places"] == list(range(n))
        assert call["devices"] == [device.id for device in devices]
        assert call["processes"] == [device.process_index for device in devices]


def test_operands_and_results(mesh_of: MeshOf) -> None:
    """The data goes in; the result and scratch come out."""
    mesh = mesh_of("1x2x4")
    text = lowered(lambda x: pccl_jax.all_gather(x, "x", algorithm="ring"), mesh, (24,)).as_text()
    (line,) = (line for line in text.splitlines() if f"@{TARGET}" in line)
    built = schedule.build("ring", Collective.ALL_GATHER, 8, 1)
    scratch = gpu_scratch_bytes(built, 24 * 4, 8 * 24 * 4)
    assert f"(tensor<24xf32>) -> (tensor<8x24xf32>, tensor<{scratch}xui8>)" in line


def test_rocm_gets_the_same_program(mesh_of: MeshOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here compiles for it: devices of the description pass for AMD's."""
    mesh = mesh_of("1x2x4")
    cuda = lowered(all_three, mesh, (8, 24), jnp.float32, ("cuda",)).as_text()
    assert len(hlo.calls(cuda)) == 3
    monkeypatch.setitem(sys.modules, MODULES["rocm"], sys.modules[MODULES["cuda"]])
    missing_handlers.cache_clear()
    monkeypatch.setattr(places, "platform_of", lambda device: "rocm")
    try:
        rocm = lowered(all_three, mesh, (8, 24), jnp.float32, ("rocm",)).as_text()
    finally:
        missing_handlers.cache_clear()
    assert rocm == cuda


def test_groups_of_one_axis_and_permuted_devices(mesh_of: MeshOf) -> None:
    order = [5, 2, 7, 0, 1, 6, 3, 4]
    mesh = mesh_of("1x2x4", 2, 4, order=order)
    (x,) = calls(lambda x: pccl_jax.psum(x, "x", algorithm="ring"), mesh, (24,))
    (y,) = calls(lambda x: pccl_jax.psum(x, "y", algorithm="ring"), mesh, (24,))
    assert x["members"] == [0, 4, 1, 5, 2, 6, 3, 7]
    assert x["devices"] == y["devices"] == order
    # Of (5, 2, 7, 0) and (1, 6, 3, 4), those of one host next to each other.
    assert y["members"] == [0, 2, 1, 3, 4, 6, 5, 7]
    assert y["places"] == [0, 2, 1, 3, 0, 2, 1, 3]
    assert y["processes"] == [order[device] // 4 for device in y["members"]]


def test_emulated_nodes(mesh_of: MeshOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCCL_RANKS_PER_NODE", "2")
    (call,) = calls(lambda x: pccl_jax.psum(x, "x", algorithm="hier_ring"), mesh_of("1x1x8"), (24,))
    assert call["program"][1:3] == [4, 2]


def under_set_mesh(collectives: Any, mesh: Mesh) -> Callable[[int], str]:
    """Lowers a psum under ``jax.set_mesh``, for the devices in order (1) or in reverse (-1)."""
    psum = jax.jit(
        jax.shard_map(lambda x: collectives.psum(x, "x"), in_specs=P("x"), out_specs=P())
    )

    def lower(order: int) -> str:
        current = Mesh(mesh.devices[::order], ("x",))
        with jax.set_mesh(current):
            x = jax.ShapeDtypeStruct((8, 24), jnp.float32, sharding=NamedSharding(current, P("x")))
            text: str = psum.lower(x).as_text()
            return text

    return lower


@pytest.fixture
def requiring(monkeypatch: pytest.MonkeyPatch) -> set[Any]:
    """Primitives that JAX lowers for each order of devices: as in a package without our module."""
    name = "prim_requires_devices_during_lowering"
    monkeypatch.setattr(_dispatch, name, getattr(_dispatch, name) - {all_reduce_p})
    changed: set[Any] = getattr(_dispatch, name)
    return changed


def test_a_lowering_that_serves_every_order_of_devices_names_none(
    mesh_of: MeshOf, requiring: set[Any]
) -> None:
    assert all_reduce_p not in requiring
    mesh = mesh_of("1x1x8")
    for lower in (
        under_set_mesh(pccl_jax, mesh),
        pccl_jax.accelerate(under_set_mesh(jax.lax, mesh)),
    ):
        pccl_jax.choices(clear=True)
        assert not hlo.calls(lower(1))
        (choice,) = pccl_jax.choices()
        assert choice.reason.startswith("with jax.set_mesh JAX may use")


def test_with_a_module_for_gpus_each_order_of_devices_is_lowered(
    mesh_of: MeshOf, requiring: set[Any]
) -> None:
    """The import says so where there is a module; a stub comes too late for that."""
    mesh = mesh_of("1x1x8")
    requires_devices(all_reduce_p)
    assert all_reduce_p in requiring
    lower = under_set_mesh(pccl_jax, mesh)
    for order in (1, -1, 1):
        (call,) = hlo.calls(lower(order))
        assert call["devices"] == list(range(8))[::order]


def test_call_sites_have_ids_of_their_own(mesh_of: MeshOf) -> None:
    found = calls(all_three, mesh_of("1x1x8"), (8, 24))
    assert len({call["site"] for call in found}) == 3


def gradient_of(collective: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return jax.grad(lambda x: (collective(x) ** 2).sum())


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (gradient_of(lambda x: pccl_jax.all_gather(x, "x")), ["all_gather", "reduce_scatter"]),
        (gradient_of(lambda x: pccl_jax.psum_scatter(x, "x")), ["all_gather", "reduce_scatter"]),
        (gradient_of(lambda x: pccl_jax.psum(x, "x")), ["all_reduce", "all_reduce"]),
        (jax.vmap(lambda x: pccl_jax.all_gather(x, "x"), in_axes=1), ["all_gather"]),
    ],
    ids=["all_gather", "psum_scatter", "psum", "vmap"],
)
def test_gradients_and_batches(
    function: Callable[[Any], Any], expected: list[str], mesh_of: MeshOf
) -> None:
    text = lowered(function, mesh_of("1x2x4"), (8, 24)).as_text()
    assert names(hlo.calls(text)) == expected
    assert not hlo.lax_collectives(text)


def test_types_are_those_of_the_gpu_kernels(mesh_of: MeshOf) -> None:
    def total(x: Any) -> Any:
        return pccl_jax.psum(x, "x")

    mesh = mesh_of("1x1x8")
    assert names(calls(total, mesh, (24,), jnp.float8_e5m2)) == ["all_reduce"]
    assert not calls(lambda x: pccl_jax.pmax(x, "x"), mesh, (24,), jnp.complex64)
    with pytest.raises(pccl_jax.ConfigurationError, match="for CPU devices, these are cuda"):
        lowered(lambda x: pccl_jax.psum(x, "x", algorithm="mpi"), mesh, (24,))


def test_accelerated_lax(mesh_of: MeshOf) -> None:
    def total(x: Any) -> Any:
        return jax.lax.psum(x, "x")

    mesh = mesh_of("1x1x8")
    assert names(calls(pccl_jax.accelerate(total), mesh, (24,))) == ["all_reduce"]
    assert not calls(total, mesh, (24,))


def test_explain_says_what_is_lowered(mesh_of: MeshOf) -> None:
    mesh = mesh_of("1x2x4")
    mapped = jax.shard_map(
        lambda x: pccl_jax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()
    )
    pccl_jax.choices(clear=True)
    x = jax.ShapeDtypeStruct((8, 1024), jnp.float32, sharding=NamedSharding(mesh, P("x")))
    jax.jit(mapped).lower(x)
    (choice,) = pccl_jax.choices()
    (line,) = pccl_jax.explain(mapped, x)
    assert (line.algorithm, line.reason) == (choice.algorithm, choice.reason)
    assert (line.nodes, line.ranks) == (2, 8)
    assert "cost model of h200" in line.reason


def test_without_the_module_the_program_is_that_of_lax(
    mesh_of: MeshOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = mesh_of("1x1x8")
    monkeypatch.setitem(sys.modules, MODULES["cuda"], None)
    missing_handlers.cache_clear()
    try:
        pccl_jax.choices(clear=True)
        ours = lowered(all_three, mesh, (8, 24))
        reasons = {(choice.algorithm, choice.reason) for choice in pccl_jax.choices()}
        explained = jax.shard_map(
            lambda x: pccl_jax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()
        )
        (line,) = pccl_jax.explain(explained, jnp.zeros(8))
    finally:
        missing_handlers.cache_clear()
    assert not hlo.calls(ours.as_text())
    assert hlo.lax_collectives(ours.as_text()) == ["all_gather", "all_reduce", "reduce_scatter"]
    (reason,) = reasons | {(line.algorithm, line.reason)}
    assert reason == (
        "xla",
        "pccl_jax was built without its module for cuda: build it where there is nvcc (CUDA "
        "toolkit) (docs/gpu.md)",
    )


def test_a_program_for_other_devices_than_those_of_the_mesh() -> None:
    """Needs no plugin: the mesh is of CPU devices."""
    mesh = Mesh(np.array(jax.devices()[:4]), ("x",))
    mapped = jax.shard_map(
        lambda x: pccl_jax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()
    )
    pccl_jax.choices(clear=True)
    traced = jax.jit(mapped).trace(jnp.zeros(8))
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    (choice,) = pccl_jax.choices()
    assert choice.reason == "lowered for cuda, and the devices are cpu"
    assert hlo.lax_collectives(text) == ["all_reduce"]
    assert not hlo.calls(text)
