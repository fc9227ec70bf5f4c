"""Algorithm `mpi`, the MPI library's own collective: right, refused where it cannot serve."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _case import assert_rows, per_rank, report, spread, step
from _expect import Over, checks, numbers, run_checks
from jax.sharding import Mesh

import pccl_jax

INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64"
FLOATS = "float32 float64 complex64 complex128"


def mesh_of(*shape: int, order: Any = None) -> Mesh:
    """All devices, or those in ``order``."""
    devices = np.array(jax.devices())
    chosen = devices if order is None else devices[np.asarray(order)]
    return Mesh(chosen.reshape(shape), tuple("xy"[: len(shape)]))


def everyone() -> Over:
    return Over(mesh_of(jax.device_count()), "x")


def is_mine(mesh: Mesh) -> bool:
    return any(d.process_index == jax.process_index() for d in mesh.devices.flat)


def served() -> set[str]:
    """The algorithms of the calls since the last look."""
    return {choice.algorithm for choice in pccl_jax.choices(clear=True)}


def sizes() -> None:
    """On copies and on the caller's buffers, the first time and later ones."""
    over = everyone()
    for count in (1, 13, 300_001):
        rows = numbers(over.ranks, (count,), np.float32)
        for _ in range(2):
            run_checks(over, [(rows, [*checks(over, "mpi", ["sum"])])], f"{count} elements")
    assert served() == {"mpi"}


def again() -> None:
    """One compiled program, run many times, with two sizes at once."""
    n, mesh = jax.device_count(), everyone().mesh
    rows = numbers(n, (20_000,), np.int32)

    def program(x):
        pair = [pccl_jax.psum(part, "x", algorithm="mpi") for part in (x[:3], x)]
        return [*pair, pccl_jax.all_gather(x, "x", algorithm="mpi")]

    run, data = per_rank(program, mesh), spread(rows, mesh)
    for _ in range(20):
        small, large, gathered = run(data)
        assert_rows(small, lambda _: rows[:, :3].sum(0), "small")
        assert_rows(large, lambda _: rows.sum(0), "large")
        assert_rows(gathered, lambda _: rows, "gathered")


def dtypes() -> None:
    """Every type and operator that MPI has; gathering every type there is."""
    over = everyone()
    batch = []
    for name in INTEGERS.split():
        found = checks(over, "mpi", ["sum", "prod", "max", "min"])
        batch.append((numbers(over.ranks, (5,), np.dtype(name)), [*found]))
    for name in FLOATS.split():
        found = checks(over, "mpi", ["sum", "prod"])
        batch.append((numbers(over.ranks, (5,), np.dtype(name)), [*found]))
    found = checks(over, "mpi", ["and", "or", "prod", "max", "min"])
    batch.append((numbers(over.ranks, (5,), np.bool_), [*found]))
    for name in ("float16", "bfloat16", "float8_e4m3fn"):
        rows = numbers(over.ranks, (5,), np.float32).astype(jnp.dtype(name))
        batch.append((rows, [*checks(over, "mpi", [])]))
    run_checks(over, batch, "dtypes")
    assert served() == {"mpi"}


def meshes() -> None:
    """Devices and axes in any order, groups of some of the processes."""
    for over in _overs():
        label = f"{over.mesh.devices.tolist()} over {over.axes}, groups {over.groups}"
        if is_mine(over.mesh):
            rows = numbers(over.ranks, (37,), np.float32)
            run_checks(over, [(rows, [*checks(over, "mpi", ["sum"])])], label)
    assert "mpi" in served()


def _overs() -> Iterator[Over]:
    n = jax.device_count()
    yield Over(mesh_of(n, order=range(n)[::-1]), "x")
    if n != 4:
        return
    yield Over(mesh_of(n), "x", [[0, 3], [2, 1]])
    for axes in ("x", "y", ("x", "y"), ("y", "x")):
        yield Over(mesh_of(2, 2, order=[2, 0, 3, 1]), axes)
    yield Over(mesh_of(3, order=[3, 1, 0]), "x")
    yield Over(mesh_of(2, order=[2, 1]), "x")


def dimensions() -> None:
    """Along a later dimension, where chunks lie in rows."""
    n, mesh = jax.device_count(), everyone().mesh
    rows, wide = numbers(n, (3, 40), np.float32), numbers(n, (3, 40 * n), np.float32)

    def program(a, b):
        return (
            pccl_jax.all_gather(a, "x", axis=1, tiled=True, algorithm="mpi"),
            pccl_jax.all_gather(a, "x", axis=1, algorithm="mpi"),
            pccl_jax.psum_scatter(b, "x", scatter_dimension=1, tiled=True, algorithm="mpi"),
        )

    gathered, stacked, scattered = per_rank(program, mesh)(spread(rows, mesh), spread(wide, mesh))
    assert_rows(gathered, lambda _: np.concatenate(rows, 1), "gathered")
    assert_rows(stacked, lambda _: np.stack(rows, 1), "stacked")
    assert_rows(scattered, lambda row: np.split(wide.sum(0), n, 1)[row], "scattered")
    assert len(pccl_jax.choices()) == 3
    assert served() == {"mpi"}


def gradients() -> None:
    """The transposes of calls with `mpi` are calls with `mpi`."""
    n, mesh = jax.device_count(), everyone().mesh
    rows = numbers(n, (3,), np.float32)

    def loss(x):
        return jnp.sum(pccl_jax.all_gather(x, "x", algorithm="mpi") ** 2)

    gradient = per_rank(jax.grad(loss), mesh)(spread(rows, mesh))
    assert_rows(gradient, lambda row: 2 * n * rows[row], "gradient")
    assert served() == {"mpi"}


def refusals() -> None:
    """What MPI cannot do: an error where the call asks for it, else another algorithm."""
    _refused(jnp.bfloat16, "sum", "MPI has no sum of bfloat16: convert to float32")
    _refused(jnp.float16, "max", "MPI has no max of float16: convert to float32")
    _refused(np.float32, "max", "may lose a NaN, which must win")
    _refused(np.float64, "min", "may lose a NaN, which must win")


def several_devices() -> None:
    """Where a process has several ranks of a group, and where it has one."""
    _refused(np.float32, "sum", "a group has 2 ranks in one process")
    devices = np.array(jax.devices()).reshape(-1, 2)
    over = Over(Mesh(devices, ("x", "y")), "x")
    pccl_jax.choices(clear=True)
    rows = numbers(over.ranks, (37,), np.float32)
    run_checks(over, [(rows, [*checks(over, "mpi", ["sum"])])], "one rank a process in each group")
    assert served() == {"mpi"}


def _refused(dtype: Any, op: str, reason: str) -> None:
    mesh = everyone().mesh
    rows = numbers(jax.device_count(), (5,), np.float32).astype(dtype)

    def program(algorithm: str | None) -> Callable[..., Any]:
        return per_rank(lambda x: pccl_jax.all_reduce(x, "x", op=op, algorithm=algorithm), mesh)

    with pytest.raises(pccl_jax.ConfigurationError, match=reason) as refusal:
        program("mpi")(spread(rows, mesh))
    assert "algorithm 'mpi' cannot serve this all_reduce of" in str(refusal.value)
    pccl_jax.choices(clear=True)
    with pccl_jax.using(algorithm="mpi"):
        result = program(None)(spread(rows, mesh))
    (choice,) = pccl_jax.choices(clear=True)
    assert choice.algorithm == "hier_rec", choice
    assert reason in choice.reason, choice
    fold = {"sum": np.sum, "max": np.max, "min": np.min}[op]
    assert_rows(result, lambda _: fold(rows.astype(np.float64), 0).astype(dtype), "preferred")


def mismatch() -> None:
    """Process 1 passes another shape."""
    mesh = everyone().mesh
    count = 5 if jax.process_index() == 1 else 4
    rows = numbers(jax.device_count(), (count,), np.float32)
    call = per_rank(lambda x: pccl_jax.psum(x, "x", algorithm="mpi"), mesh)
    jax.block_until_ready(call(spread(rows, mesh)))


def skipped() -> None:
    """Process 1 leaves out an execution of a call that has run before."""
    mesh = everyone().mesh
    rows = numbers(jax.device_count(), (50_000,), np.float32)
    call = per_rank(lambda x: pccl_jax.psum(x, "x", algorithm="mpi"), mesh)
    jax.block_until_ready(call(spread(rows, mesh)))
    if jax.process_index() != 1:
        jax.block_until_ready(call(spread(rows, mesh)))


if __name__ == "__main__":
    pccl_jax.init()
    for part in sys.argv[1:]:
        with step(part):
            globals()[part]()
    report("end")
