"""Programs that leave the process: exported, serialised, lowered for other platforms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import serialize_executable
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import assert_same, mesh_of
from processes import run_program

import pccl_jax

from .calls import every
from .contexts import X, shard

TARGET = "pccl_collective"
OURS_ALLOWED = [jax.export.DisabledSafetyCheck.custom_call(TARGET)]

each_platforms = pytest.mark.parametrize("platforms", [("cpu",), ("cpu", "cuda")], ids="-".join)


def placed(x: Any = X) -> Any:
    return jax.device_put(x, NamedSharding(mesh_of(4), P("x")))


def program(lib: Any, **options: Any) -> Any:
    return jax.jit(shard(lambda x: every(lib, x), **options))


def both_ways() -> list[Any]:
    """Our functions, and lax's accelerated."""
    return [program(pccl_jax), pccl_jax.accelerate(program(lax))]


def there_and_back(exported: Any, **options: Any) -> Any:
    return jax.export.deserialize(exported.serialize(**options))


@each_platforms
def test_export_is_as_with_lax(platforms: tuple[str, ...]) -> None:
    """Exported programs hold lax's collectives: what reads them need not have pccl_jax."""
    theirs = program(lax)(X)
    exported = [jax.export.export(f, platforms=platforms)(X) for f in both_ways()]
    for each in exported:
        assert TARGET not in each.mlir_module()
        assert_same(jax.jit(there_and_back(each).call)(placed()), theirs)


@each_platforms
def test_export_keeps_an_algorithm_that_is_asked_for(platforms: tuple[str, ...]) -> None:
    theirs = program(lax)(X)
    f = both_ways()[len(platforms) - 1]
    with pccl_jax.using(algorithm="ring"):
        exported = jax.export.export(f, platforms=platforms, disabled_checks=OURS_ALLOWED)(X)
    assert TARGET in exported.mlir_module()
    call = there_and_back(exported).call
    assert_same(jax.jit(lambda x: (call(x), call(2 * x)))(placed()), (theirs, program(lax)(2 * X)))


def test_exported_derivatives() -> None:
    def squares(lib: Any) -> Any:
        return jax.jit(shard(lambda x: lib.all_gather(x, "x", tiled=True).sum(0) * x))

    exported = there_and_back(jax.export.export(squares(pccl_jax))(X), vjp_order=1)
    ours, theirs = (
        jax.jit(jax.grad(lambda x, f=f: (f(x) ** 2).sum()))(placed())
        for f in (exported.call, squares(lax))
    )
    assert_same(ours, theirs)


def test_shapes_with_symbols() -> None:
    """One dimension is not known while the program is lowered."""
    rows = jax.ShapeDtypeStruct(jax.export.symbolic_shape("4*b, 2"), X.dtype)

    def reductions(lib: Any) -> Any:
        body = lambda x: (lib.psum(x, "x"), lib.pmax(x, "x"), lib.pmin(x, "x"))  # noqa: E731
        return jax.jit(shard(body, check_vma=False))

    def moves(x: Any) -> Any:  # which JAX exports, and cannot always run
        tiles = jnp.concatenate([x, x], 1)
        return (
            pccl_jax.all_gather(x, "x", axis=1, tiled=True),
            pccl_jax.psum_scatter(tiles, "x", scatter_dimension=1, tiled=True),
        )

    pccl_jax.choices(clear=True)
    jax.export.export(jax.jit(shard(moves)))(rows)
    exported = there_and_back(jax.export.export(reductions(pccl_jax))(rows))
    reasons = {choice.reason for choice in pccl_jax.choices(clear=True)}
    assert reasons == {"a shape with symbols in it"}
    for x in (X, X[:8]):
        assert_same(jax.jit(exported.call)(placed(x)), reductions(lax)(x))


@pytest.mark.parametrize("platforms", [("cuda",), ("tpu",), ("cpu", "cuda")], ids="-".join)
def test_lowering_for_other_platforms(platforms: tuple[str, ...]) -> None:
    for f in both_ways():
        text = f.trace(X).lower(lowering_platforms=platforms).as_text()
        assert (TARGET in text) == ("cpu" in platforms)
        assert "stablehlo.all_reduce" in text


def test_a_mesh_without_devices() -> None:
    """More devices than there are here: for another machine."""
    mesh = AbstractMesh((64,), ("x",))
    x = jax.ShapeDtypeStruct((64, 3), np.float32, sharding=NamedSharding(mesh, P("x")))
    f = jax.jit(shard(lambda x: pccl_jax.psum(x, "x"), mesh))
    pccl_jax.choices(clear=True)
    assert jax.export.export(f)(x).nr_devices == 64
    (choice,) = pccl_jax.choices(clear=True)
    assert choice.algorithm == "xla"
    assert "abstract mesh of 64 devices" in choice.reason


def test_a_process_that_lowers_nothing_runs_what_another_has_compiled(tmp_path: Path) -> None:
    """Both an exported program and an executable, read from files."""
    with pccl_jax.using(algorithm="ring"):
        f = jax.jit(shard(lambda x: pccl_jax.psum(x, "x"), mesh_of(4)))
        exported = jax.export.export(f, disabled_checks=OURS_ALLOWED)(X)
        payload, _, _ = serialize_executable.serialize(f.lower(X).compile())
    (tmp_path / "exported").write_bytes(exported.serialize())
    (tmp_path / "compiled").write_bytes(payload)
    code = """
        import os
        from pathlib import Path
        from jax.experimental import serialize_executable
        from jax.sharding import NamedSharding, PartitionSpec as P
        jax.config.update("jax_enable_x64", True)
        folder = Path(os.environ["FOLDER"])
        x = jax.device_put(np.arange(32.0).reshape(16, 2), NamedSharding(mesh_of(4), P("x")))
        right = np.tile(np.arange(32.0).reshape(4, 4, 2).sum(0), (4, 1))
        pccl_jax.register_handlers()
        exported = jax.export.deserialize((folder / "exported").read_bytes())
        np.testing.assert_array_equal(jax.jit(exported.call)(x), right)
        args = jax.tree.structure(((0,), {}))
        compiled = serialize_executable.deserialize_and_load(
            (folder / "compiled").read_bytes(), args, jax.tree.structure(0),
            execution_devices=jax.devices())
        np.testing.assert_array_equal(compiled(x), right)
    """
    run_program(code, devices=4, FOLDER=str(tmp_path))
