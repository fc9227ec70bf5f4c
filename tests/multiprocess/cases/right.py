"""Every collective, algorithm, type and mesh gives what numpy says."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from _case import assert_rows, per_rank, spread, step
from _expect import Over, checks, numbers, run_checks
from jax.sharding import Mesh

import pccl_jax
from pccl_jax.runtime import joined_world

DTYPES = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64"
OWN = [name for name in pccl_jax.algorithms() if name not in ("xla", "mpi")]


def mesh_of(*shape: int, order: np.ndarray | None = None, count: int | None = None) -> Mesh:
    """All devices, or the first ``count``, or those in ``order``."""
    devices = np.array(jax.devices())[: count or len(jax.devices())]
    return Mesh(
        (devices if order is None else devices[order]).reshape(shape), tuple("xyz"[: len(shape)])
    )


def algorithms(counts: tuple[int, ...] = (1, 13, 300_001)) -> None:
    """All of them, from one element to several pieces in shared memory and several messages."""
    over = Over(mesh_of(len(jax.devices())), "x")
    vendor = ["mpi"] if jax.local_device_count() == 1 else []
    for count in counts:
        rows = numbers(over.ranks, (count,), np.float32)
        names = (None, *OWN, *vendor)
        found = [check for name in names for check in checks(over, name, ["sum"])]
        run_checks(over, [(rows, found)], f"{count} elements")


def small() -> None:
    """All algorithms, one short vector."""
    algorithms((13,))


def dtypes() -> None:
    """Every type with every operator."""
    over = Over(mesh_of(len(jax.devices())), "x")
    batch = []
    for name in DTYPES.split():
        found = checks(over, None, ["sum", "prod", "max", "min"])
        batch.append((numbers(over.ranks, (5,), np.dtype(name)), list(found)))
    for name in ("complex64", "complex128"):
        batch.append((numbers(over.ranks, (5,), np.dtype(name)), [*checks(over, None, ["sum"])]))
    rows = numbers(over.ranks, (5,), np.bool_)
    batch.append((rows, [*checks(over, None, ["and", "or"])]))
    run_checks(over, batch, "dtypes")
    counted = per_rank(lambda x: pccl_jax.psum(x, "x"), over.mesh)(spread(rows, over.mesh))
    assert_rows(counted, lambda _: rows.sum(0, dtype=np.int32), "psum of bool")


def meshes() -> None:
    """Devices in any order, axes in any order, groups that span some of the processes."""
    for over in _overs():
        label = f"{over.mesh.devices.tolist()} over {over.axes}, groups {over.groups}"
        mine = any(d.process_index == jax.process_index() for d in over.mesh.devices.flat)
        if not mine:
            continue
        rows = numbers(over.ranks, (37,), np.float32)
        found = [check for name in (None, "ring", "rec") for check in checks(over, name, ["sum"])]
        run_checks(over, [(rows, found)], label)


def _overs() -> Iterator[Over]:
    n = len(jax.devices())
    random = np.random.RandomState(7)
    yield Over(mesh_of(n, order=random.permutation(n)), "x")
    yield Over(mesh_of(n, order=np.arange(n)[::-1]), "x")
    if n % 2 == 0:
        yield Over(mesh_of(n), "x", [range(0, n, 2), range(1, n, 2)])
        square = mesh_of(2, n // 2, order=random.permutation(n))
        for axes in ("x", "y", ("x", "y"), ("y", "x")):
            yield Over(square, axes)
    if n > 2:
        yield Over(mesh_of(n - 1, count=n - 1), "x")
        yield Over(mesh_of(2, order=np.array([0, n - 1])), "x")
    if n % 4 == 0:
        cube = mesh_of(2, n // 4, 2, order=random.permutation(n))
        for axes in ("y", ("z", "x"), ("y", "z")):
            yield Over(cube, axes)


def dimensions() -> None:
    """Chunks that are not contiguous, small and in several pieces."""
    over = Over(mesh_of(len(jax.devices())), "x")
    n, mesh = over.ranks, over.mesh
    for shape in ((3, 2), (5, 40_000)):
        gathered_rows = numbers(n, shape, np.float32)
        scattered_rows = numbers(n, (shape[0], shape[1] * n), np.float32)
        for name in (None, "ring", "rec"):

            def program(a, b, name=name):
                gather = pccl_jax.all_gather(a, "x", axis=1, tiled=True, algorithm=name)
                stack = pccl_jax.all_gather(a, "x", axis=1, algorithm=name)
                scatter = pccl_jax.psum_scatter(
                    b, "x", scatter_dimension=1, tiled=True, algorithm=name
                )
                return gather, stack, scatter

            gather, stack, scatter = per_rank(program, mesh)(
                spread(gathered_rows, mesh), spread(scattered_rows, mesh)
            )
            what = f"{shape}, {name}"
            assert_rows(gather, lambda _, r=gathered_rows: np.concatenate(r, 1), what)
            assert_rows(stack, lambda _, r=gathered_rows: np.stack(r, 1), what)
            assert_rows(scatter, lambda row, r=scattered_rows: np.split(r.sum(0), n, 1)[row], what)


def gradients() -> None:
    """A training step of the FSDP kind: weights gathered, their gradients reduce-scattered."""
    n = len(jax.devices())
    mesh = mesh_of(n)
    shards, inputs = numbers(n, (2, 3), np.float32), numbers(n, (4, 2 * n), np.float32)

    def loss(shard, x):
        whole = pccl_jax.all_gather(shard, "x", tiled=True)
        return pccl_jax.psum(jnp.sum((x @ whole) ** 2), "x")

    def step_of(shard, x):
        value, gradient = jax.value_and_grad(loss)(shard, x)
        return value, gradient

    value, gradient = per_rank(step_of, mesh)(spread(shards, mesh), spread(inputs, mesh))
    whole = np.concatenate(shards)
    outputs = [x @ whole for x in inputs]
    assert_rows(value, lambda _: np.float32(sum((y**2).sum() for y in outputs)), "loss")
    # Without check_vma the transpose of psum is psum, as in lax: every rank's loss counts.
    full = n * sum(2 * x.T @ y for x, y in zip(inputs, outputs, strict=True))
    assert_rows(gradient, lambda row: np.split(full, n)[row], "gradient")


def large() -> None:
    """More than 16 MiB on a rank."""
    over = Over(mesh_of(len(jax.devices())), "x")
    rows = numbers(over.ranks, (4_500_001,), np.float32)
    for name in (None, "hier_ring"):
        found = [check for check in checks(over, name, ["sum"]) if "scatter" not in check.name]
        run_checks(over, [(rows, found)], f"large, {name}")


def direct() -> None:
    """All-gathers so large that processes read each other's memory, in one run and in several."""
    over = Over(mesh_of(len(jax.devices())), "x")
    rows = numbers(over.ranks, (5, 220_001), np.float32)

    def program(x):
        whole = pccl_jax.all_gather(x, "x", tiled=True)
        return whole, pccl_jax.all_gather(x, "x", axis=1, tiled=True)

    flat, wide = per_rank(program, over.mesh)(spread(rows, over.mesh))
    assert_rows(flat, lambda _: np.concatenate(rows), "along the first dimension")
    assert_rows(wide, lambda _: np.concatenate(rows, 1), "along the second")


def hosts() -> None:
    """As many as the test has made, each a node."""
    world = joined_world()
    assert world is not None
    assert len(set(world.host_of)) == int(os.environ["PCCL_TEST_HOSTS"]), world.host_of


if __name__ == "__main__":
    pccl_jax.init()
    for part in sys.argv[1:]:
        with step(part):
            globals()[part]()
