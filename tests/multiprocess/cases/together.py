"""Several programs at once, in flight and from several threads; programs that share a name."""

from __future__ import annotations

import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
from _case import RANK, assert_rows, per_rank, report, spread, step
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

import pccl_jax


def line() -> Mesh:
    return Mesh(np.array(jax.devices()), ("x",))


def named(name, function):
    function.__name__ = name
    return function


def data(count: int, seed: int) -> np.ndarray:
    return (
        np.random.RandomState(seed).randint(-9, 9, (len(jax.devices()), count)).astype(np.float32)
    )


def totals(name: str, factor: int):
    """A program, and what it gives for some rows."""
    function = named(name, lambda x: pccl_jax.psum(factor * x, "x"))
    return per_rank(function, line()), lambda rows: factor * rows.sum(0)


def in_flight() -> None:
    """Dispatched one after the other, and nobody waits in between."""
    first, first_right = totals("first", 2)
    second, second_right = totals("second", 3)
    pending = []
    for i in range(15):
        for function, right in ((first, first_right), (second, second_right)):
            rows = data(2000, i)
            pending.append((function(spread(rows, line())), right(rows)))
    for i, (result, right) in enumerate(pending):
        assert_rows(result, lambda _, r=right: r, f"launch {i}")


def threads() -> None:
    """Two threads with a program each; processes start them in different orders."""
    same = [totals("left", 2), totals("right", 3)]
    for turn in (lambda pair: pair, lambda pair: pair[:: 1 - 2 * (RANK % 2)]):
        errors: list[Exception] = []

        def work(function, right, errors=errors) -> None:
            try:
                for i in range(10):
                    rows = data(3000, i)
                    result = jax.block_until_ready(function(spread(rows, line())))
                    expected = right(rows)
                    assert_rows(result, lambda _, r=expected: r, f"iteration {i}")
            except Exception as e:
                errors.append(e)

        workers = [threading.Thread(target=work, args=pair) for pair in turn(same)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if errors:
            raise errors[0]


def crowded() -> None:
    """Far more collectives at once than have room in shared memory, over groups that overlap.

    Two threads start them in opposite orders on odd and even processes.
    """
    devices = np.array(jax.devices())
    grid = Mesh(devices.reshape(2, -1), ("x", "y"))
    n, wide = len(devices), grid.devices.shape[1]

    def many(axis):
        def program(x):
            return [pccl_jax.psum(x + i, axis)[::4001] for i in range(40)]

        spec = P(("x", "y"))
        mapped = jax.shard_map(
            named(f"many_{axis}", program), mesh=grid, in_specs=spec, out_specs=spec
        )
        return jax.jit(mapped)

    rows = np.repeat(np.arange(n, dtype=np.float32), 200_000)
    x = jax.make_array_from_callback(
        rows.shape, jax.NamedSharding(grid, P(("x", "y"))), lambda i: rows[i]
    )
    table = np.arange(n).reshape(2, wide)
    sums = {"x": np.tile(table.sum(0), (2, 1)), "y": np.tile(table.sum(1)[:, None], (1, wide))}
    programs = {axis: many(axis).lower(x).compile() for axis in ("x", "y")}
    results: dict[str, list[jax.Array]] = {}

    def work(axis) -> None:
        results[axis] = [y for _ in range(2) for y in programs[axis](x)]

    workers = [threading.Thread(target=work, args=(axis,)) for axis in "xy"[:: 1 - 2 * (RANK % 2)]]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for axis, group in (("x", 2), ("y", wide)):
        for i, result in enumerate(results[axis]):
            for shard in result.addressable_shards:
                device = shard.index[0].start // shard.data.size
                want = sums[axis].ravel()[device] + group * (i % 40)
                np.testing.assert_array_equal(np.asarray(shard.data), want, f"{axis} {i}")


def inner_twice() -> None:
    """The same jitted function called twice in one program, and in a loop beside it."""
    inner = jax.jit(lambda x: pccl_jax.psum(x, "x"))

    def program(x):
        looped = jax.lax.fori_loop(0, 3, lambda _, y: inner(y) / 4, 4 * x)
        return inner(x), inner(2 * x), looped

    n, rows = len(jax.devices()), data(100, 1)
    one, two, three = per_rank(program, line())(spread(rows, line()))
    assert_rows(one, lambda _: rows.sum(0), "once")
    assert_rows(two, lambda _: 2 * rows.sum(0), "twice")
    assert_rows(three, lambda _: rows.sum(0) * (n / 4) ** 2, "in a loop")


def chain() -> None:
    """Many launches, each with the result of the one before."""
    n = len(jax.devices())
    function = per_rank(named("link", lambda x: pccl_jax.pmax(x, "x") + 1), line())
    x = spread(data(50, 3), line())
    for i in range(200):
        x = function(x)
        if i % 5 == 0:
            jax.block_until_ready(x)
    assert_rows(x, lambda _: data(50, 3).max(0) + 200, f"chain over {n}")


def lone_programs() -> None:
    """One process runs programs of its own that are called like the one they all run."""
    if RANK == 1:
        own = Mesh(np.array(jax.local_devices()), ("x",))
        for count in (3, 4):
            rows = np.ones((len(jax.local_devices()), count), np.float32)
            per_rank(named("shared", lambda x: pccl_jax.psum(x, "x")), own)(spread(rows, own))
    function, right = totals("shared", 1)
    rows = data(10, 5)
    assert_rows(function(spread(rows, line())), lambda _: right(rows), "shared")


def as_lax() -> None:
    """A few numbers beside jax.lax itself."""
    rows = data(64, 9)
    for name in ("psum", "pmin"):
        results = [
            per_rank(lambda x, m=module, f=name: getattr(m, f)(x, "x"), line())(
                spread(rows, line())
            )
            for module in (jax.lax, pccl_jax)
        ]
        for theirs, ours in zip(*(r.addressable_shards for r in results), strict=True):
            np.testing.assert_array_equal(np.asarray(ours.data), np.asarray(theirs.data))


def other_order() -> None:
    """One jitted function under meshes that differ in nothing but the order of their devices."""
    devices = np.array(jax.devices())
    n = len(devices)
    swapped = devices[[1, 0, *range(2, n)]] if jax.local_device_count() == 1 else devices[::-1]

    def body(x):
        return pccl_jax.all_gather(x, "x", tiled=True)

    def gather(x):
        return jax.shard_map(body, in_specs=P("x"), out_specs=P("x"), check_vma=False)(x)

    def gather_anew(x):
        return gather(x)

    refused, known, anew = 0, jax.jit(gather), jax.jit(gather_anew)
    plan = ((devices, known), (swapped, known), (devices, known), (swapped, anew))
    for order, program in plan:
        mesh = Mesh(order, ("x",), axis_types=(AxisType.Auto,))
        with jax.set_mesh(mesh):
            rows = np.arange(n * 3, dtype=np.float32)
            x = jax.make_array_from_callback(
                rows.shape, jax.NamedSharding(mesh, P("x")), lambda i, r=rows: r[i]
            )
            try:
                result = jax.block_until_ready(program(x))
            except Exception as e:
                if "device order" not in str(e) or program is anew:
                    raise
                refused += 1
                continue
            for shard in result.addressable_shards:
                np.testing.assert_array_equal(np.asarray(shard.data), rows)
    assert refused <= 1
    report("refused", str(refused))


if __name__ == "__main__":
    pccl_jax.init()
    jnp.zeros(1).block_until_ready()
    for part in sys.argv[1:]:
        with step(part):
            globals()[part]()
