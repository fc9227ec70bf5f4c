"""Collectives over communicators, in programs that each process jits for itself: ``comm=``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from _case import per_rank as per_device
from _case import report, spread, step
from _expect import FOLD, numbers, operand
from _plain import WORLD, all_equal, check, off_fast_path
from jax import lax
from jax.sharding import Mesh
from mpi4py import MPI

import pccl_jax

R, N = WORLD.rank, WORLD.size
OWN = [name for name in pccl_jax.algorithms() if name != "xla"]


def algorithms(counts: tuple[int, ...] = (1, 300_001)) -> None:
    """All of them, from one element to several pieces in shared memory and several messages."""
    for count in counts:
        rows = numbers(N, (count,), np.float32)
        total = rows.sum(0)
        results: dict[str, Callable[[Any], Any]] = {}
        right: dict[str, np.ndarray] = {}
        for name in (None, *OWN):
            common: dict[str, Any] = {"comm": WORLD, "algorithm": name}
            if name is None or name in pccl_jax.algorithms("all_reduce"):
                results[f"psum {name}"] = partial(pccl_jax.psum, **common)
                right[f"psum {name}"] = total
            if name is None or name in pccl_jax.algorithms("all_gather"):
                results[f"gather {name}"] = partial(pccl_jax.all_gather, **common, tiled=True)
                right[f"gather {name}"] = rows.reshape(-1)
                results[f"scatter {name}"] = lambda x, c=common: pccl_jax.psum_scatter(
                    operand(jnp, x, "sum", N), **c, tiled=True
                )
                right[f"scatter {name}"] = total * (R % 3 + 1)
        check(lambda x, r=results: {what: f(x) for what, f in r.items()}, rows[R], right)


def small() -> None:
    algorithms((13,))


def types() -> None:
    """Operators and element types; what is counted, converted, empty or a pytree."""
    for name in ("int8", "uint16", "int64", "bfloat16", "float64", "complex64", "bool"):
        rows = numbers(N, (7,), np.dtype(name))
        ops = {"bool": ["and", "or"], "complex64": ["sum"]}.get(name, ["sum", "max", "min", "prod"])
        inputs = {op: np.stack([operand(np, row, op, 1) for row in rows]) for op in ops}
        check(
            lambda x: {op: pccl_jax.all_reduce(x[op], comm=WORLD, op=op) for op in x},
            {op: x[R] for op, x in inputs.items()},
            {op: FOLD[op].reduce(x, 0, dtype=x.dtype) for op, x in inputs.items()},
        )
    truth = numbers(N, (5,), np.bool_)
    rows = numbers(N, (N, 3), np.float32)
    check(
        lambda t, x: {
            "counted": pccl_jax.psum(t, comm=WORLD),
            "number": pccl_jax.psum(2, comm=WORLD),
            "tree": pccl_jax.pmean({"a": x, "b": (4 * x,)}, comm=WORLD),
            "empty": pccl_jax.all_gather(x[:0], comm=WORLD, tiled=True),
            "largest": pccl_jax.pmax(x, comm=WORLD) - pccl_jax.pmin(x, comm=WORLD),
            "chunk": pccl_jax.reduce_scatter(x, comm=WORLD, op="mean"),
        },
        (truth[R], rows[R]),
        {
            "counted": truth.sum(0, dtype=np.int32),
            "number": np.int64(2 * N),
            "tree": {"a": rows.sum(0) / np.float32(N), "b": (4 * rows.sum(0) / np.float32(N),)},
            "empty": rows[R][:0],
            "largest": rows.max(0) - rows.min(0),
            "chunk": rows.sum(0)[R] / np.float32(N),
        },
        True,
    )


def dimensions() -> None:
    """Along every dimension, stacked and joined, in rows long and short; outside of jit too."""
    for shape in ((2, 3 * N, 40), (5, N, 1)):
        rows = numbers(N, shape, np.float32)
        for axis in (0, 1, -1):
            for tiled in (True, False):
                gather = partial(pccl_jax.all_gather, comm=WORLD, axis=axis, tiled=tiled)
                join = np.concatenate if tiled else np.stack
                check(gather, rows[R], join(list(rows), axis=axis))
        total = rows.sum(0)
        chunk = np.split(total, N, axis=1)[R]
        scatter = partial(pccl_jax.psum_scatter, comm=WORLD, scatter_dimension=1, tiled=True)
        check(scatter, rows[R], chunk)
        all_equal(scatter(jnp.asarray(rows[R])), chunk, "outside of jit")
    rows = numbers(N, (5, N, 2), np.float32)
    scatter = partial(pccl_jax.psum_scatter, comm=WORLD, scatter_dimension=1)
    check(scatter, rows[R], rows.sum(0)[:, R])


def late(x):
    """The same, after a while."""
    return x + 0 * (jnp.ones((400, 9 + x.size), x.dtype) @ jnp.ones((9 + x.size, 9), x.dtype)).sum()


def order() -> None:
    """Independent calls, equal but in their data, around which each process computes otherwise."""
    sizes = [1000 + 7919 * i % 5000 for i in range(8)]
    rows = [numbers(N, (size,), np.float32) for size in sizes]

    def program(xs):
        sums = []
        for i, x in enumerate([*xs, *xs]):
            x = late(x) if (i + R) % 3 == 0 else x
            sums.append(pccl_jax.psum((i + 1) * x, comm=WORLD))
        return sums

    right = [(i + 1) * x.sum(0) for i, x in enumerate([*rows, *rows])]
    check(program, [x[R] for x in rows], right)


def kept() -> None:
    """What one process does not use, or has twice, the others wait for."""
    rows = numbers(N, (50,), np.float32)

    def program(x):
        once = pccl_jax.psum(x, comm=WORLD)
        again = pccl_jax.psum(x if R == 0 else 2 * x, comm=WORLD)
        unused = pccl_jax.psum(x, comm=WORLD)
        _, looped = lax.scan(lambda c, _: (c, pccl_jax.psum(x, comm=WORLD)), 0, None, length=3)
        return again if R == 0 else (once + unused + looped.sum(0) - 5 * rows.sum(0) + again)

    check(program, rows[R], rows[0] + 2 * rows[1:].sum(0))
    # A loss that is the process's own on one of them.
    loss = jax.value_and_grad(lambda x: (x, pccl_jax.psum(x, comm=WORLD))[min(R, 1)].sum())
    value = rows[0].sum() if R == 0 else rows.sum()
    check(loss, rows[R], (value, np.ones_like(rows[R])))


def control_flow() -> None:
    """In loops and branches, beside calls before and after them."""
    rows = numbers(N, (30,), np.float32)
    total = rows.sum(0)
    psum = partial(pccl_jax.psum, comm=WORLD)

    def program(x, turns):
        before = psum(x)

        def body(carry, i):
            a = psum(i * x)
            return carry + psum(3 * x), a

        carry, inside = lax.scan(body, jnp.zeros_like(x), jnp.arange(3.0, dtype=x.dtype))
        branch = lax.cond(x[0] > -9, lambda y: psum(5 * y) + psum(y), lambda y: y, x)
        inner = jax.jit(lambda y: psum(7 * y))
        twice = inner(x) + inner(2 * x)
        looped = lax.fori_loop(0, turns, lambda _, y: y + psum(x), jnp.zeros_like(x))
        waited = lax.while_loop(
            lambda y: psum(y[:1])[0] < 40 * N, lambda y: y + psum(jnp.ones_like(y)), 0 * x
        )
        once = lax.scan(lambda c, _: (c, psum(9 * x)), 0, None, length=1)[1][0]
        again = jax.checkpoint(lambda y: psum(11 * y))(x)
        return before, carry, inside, branch, twice, looped, waited, once, again, psum(13 * x)

    least = np.ceil(40 / N) * N
    right = (total, 9 * total, [i * total for i in range(3)], 6 * total, 21 * total, 4 * total)
    right = (*right, np.full_like(total, least), 9 * total, 11 * total, 13 * total)
    right = (*right[:2], np.stack(right[2]), *right[3:])
    check(program, (rows[R], 4), right, True)


def launches() -> None:
    """Programs in flight, none of which is waited for, short ones among long ones."""
    rows = numbers(N, (100,), np.float32)

    def program(factor, x):
        x = late(x) if factor % 3 == R % 3 else x
        return pccl_jax.psum(factor * x, comm=WORLD)

    programs = [jax.jit(partial(program, factor)) for factor in range(1, 7)]
    results = [(f, programs[f - 1](rows[R])) for _ in range(10) for f in range(1, 7)]
    for factor, result in results:
        all_equal(result, factor * rows.sum(0), f"launch of {factor}")


def devices() -> None:
    """The same, on each of this process's devices in turn."""
    rows = numbers(N, (2000,), np.float32)
    program = jax.jit(partial(pccl_jax.psum, comm=WORLD))
    own = [jax.device_put(rows[R], device) for device in jax.local_devices()]
    results = [(f, program(f * own[f % len(own)])) for f in range(100)]
    for factor, result in results:
        all_equal(result, factor * rows.sum(0), f"launch of {factor}")
    both = jax.NamedSharding(Mesh(np.array(jax.local_devices()), ("x",)), jax.P("x"))
    with pytest.raises(ValueError, match="this program is for 2 devices"):
        program(jax.device_put(rows[R], both))


def mapped() -> None:
    """Under vmap, in any dimension, and under vmap of the gradient."""
    rows = numbers(N, (4, N, 6), np.float32)

    def program(x):
        return (
            jax.vmap(partial(pccl_jax.psum, comm=WORLD), in_axes=2)(x),
            jax.vmap(partial(pccl_jax.all_gather, comm=WORLD, tiled=True), 1, 1)(x),
            jax.vmap(partial(pccl_jax.all_gather, comm=WORLD), in_axes=0)(x),
            jax.vmap(partial(pccl_jax.psum_scatter, comm=WORLD))(x),
            jax.vmap(jax.grad(lambda y: pccl_jax.psum((y**2).sum(), comm=WORLD)))(x),
        )

    total = rows.sum(0)
    right = (
        np.moveaxis(total, 2, 0),
        np.concatenate(rows, 0),
        np.moveaxis(rows, 0, 1),
        total[:, R],
        2 * rows[R],
    )
    check(program, rows[R], right)

    def doubled(x):
        """Until the sum is 40 N, whose element of the batch gets there in turns of its own."""
        return lax.while_loop(
            lambda y: pccl_jax.psum(y, comm=WORLD)[0] < 40 * N,
            lambda y: y + pccl_jax.psum(y, comm=WORLD) / N,
            x,
        )

    start = np.array([[1, 3, 40], [5, 2, 64]], np.float32)[..., None]
    check(jax.vmap(doubled), start[0], np.array([[64], [48], [40]], np.float32))
    end = np.array([[64, 48, 40], [40, 64, 64]], np.float32)[..., None]
    check(jax.vmap(jax.vmap(doubled), 1, 1), start, end)


def gradients() -> None:
    """First and second derivatives are those of shard_map with check_vma=True."""
    mesh = Mesh(np.array(jax.local_devices()[:N]), ("x",))
    weights, inputs = numbers(N, (2, 3), np.float64), numbers(N, (4, 2 * N), np.float64)

    def ours(w, x):
        return derivatives(pccl_jax, pccl_jax.pvary, {"comm": WORLD}, w, x)

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=jax.P("x"), out_specs=jax.P("x"))
    def theirs(w, x):
        def row(y):
            varies = "x" in jax.typeof(y).manual_axis_type.varying
            return (y if varies else lax.pcast(y, "x", to="varying"))[None]

        found = derivatives(lax, lambda y, axis_name: y, {"axis_name": "x"}, w[0], x[0])
        return jax.tree.map(row, found)

    right = theirs(spread(weights, mesh), spread(inputs, mesh))
    check(ours, (weights[R], inputs[R]), jax.tree.map(lambda y: np.asarray(y)[R], right), True)


def derivatives(
    module: Any, vary: Callable[..., Any], where: dict[str, Any], w: Any, x: Any
) -> dict[str, Any]:
    """Of losses that are equal on all ranks; ``vary`` is what shard_map does where it has to."""
    psum, pmean = partial(module.psum, **where), partial(module.pmean, **where)
    gather = partial(module.all_gather, **where, tiled=True)
    scatter = partial(module.psum_scatter, **where, tiled=True)

    def sharded(w, x):
        return pmean(((x @ gather(w)) ** 2).sum())

    def mixed(w, x):
        means = psum((w**2).sum() * x.sum())
        own = (scatter((x**2).T) * vary(means, **where)).sum()
        return psum(own * w[0, 0]) + means**2

    def looped(w, x):
        def body(c, _):
            return c + vary(psum((c * w).sum()), **where), None

        return pmean(lax.scan(jax.checkpoint(body), x[0, 0] ** 2, None, length=2)[0])

    def total(w):
        return psum(sum((d**2).sum() for d in jax.grad(mixed, (0, 1))(w, x)))

    found = {f.__name__: jax.value_and_grad(f, (0, 1))(w, x) for f in (sharded, mixed, looped)}
    return found | {"second": jax.grad(total)(w)}


def shared() -> None:
    """Parameters that all processes share, made to vary, have the whole gradient on each."""
    rows = numbers(N, (6, 3), np.float64)
    w = np.arange(3.0)

    def loss(w, x):
        return pccl_jax.pmean(((x @ pccl_jax.pvary(w, comm=WORLD)) ** 2).sum(), comm=WORLD)

    right = sum(2 * x.T @ (x @ w) for x in rows) / N
    check(jax.grad(loss), (w, rows[R]), right, True)


def groups() -> None:
    """Communicators of parts of the processes, in other orders, made and freed again."""
    rows = numbers(N, (9,), np.float32)
    parity = WORLD.Split(R % 2, -R)
    pair = WORLD.Split(R // 2, R)
    pccl_jax.init(comm=pair)
    for _ in range(2):
        copy = parity.Dup()
        even = [row for row in range(N) if row % 2 == R % 2][::-1]
        two = [row for row in range(N) if row // 2 == R // 2]

        def program(x, comm=copy):
            gathered = pccl_jax.all_gather(x, comm=comm)
            alone = pccl_jax.psum(x, comm=MPI.COMM_SELF)
            return gathered, pccl_jax.psum(gathered, comm=pair), alone

        of_two = [rows[[q for q in range(N) if q % 2 == row % 2][::-1]] for row in two]
        right = (rows[even], np.sum([g for g in of_two if g.shape == rows[even].shape], 0), rows[R])
        check(program, rows[R], right)
        copy.Free()
    # Only some of them use one.
    some = WORLD.Create_group(WORLD.group.Incl([0, 1]))
    if R < 2:
        check(partial(pccl_jax.psum, comm=some), rows[R], rows[:2].sum(0))


def beside() -> None:
    """mpi4jax in the same program, on the same communicator."""
    import mpi4jax

    rows = numbers(N, (20,), np.float32)

    def program(x):
        first = pccl_jax.psum(x, comm=WORLD)
        theirs = mpi4jax.allreduce(2 * x, op=MPI.SUM, comm=WORLD)
        chained = mpi4jax.allreduce(pccl_jax.psum(theirs, comm=WORLD), op=MPI.SUM, comm=WORLD)
        passed = mpi4jax.sendrecv(x, x, source=(R - 1) % N, dest=(R + 1) % N, comm=WORLD)
        return first, theirs, chained, pccl_jax.all_gather(passed, comm=WORLD)

    total = rows.sum(0)
    right = (total, 2 * total, 2 * N * N * total, np.roll(rows, 1, 0))
    for _ in range(3):
        check(program, rows[R], right)
    # A communicator that is used by both for the first time while theirs is in flight.
    fresh = WORLD.Dup()
    theirs = jax.jit(lambda x: mpi4jax.allreduce(x, op=MPI.SUM, comm=fresh))
    pending = [theirs(rows[R]) for _ in range(3)]
    check(partial(pccl_jax.psum, comm=fresh), rows[R], total)
    for result in pending:
        all_equal(result, total, "mpi4jax")


def fast() -> None:
    """A jitted call does not go through Python again."""
    function = jax.jit(lambda x: 2 * pccl_jax.psum(x, comm=WORLD))
    assert off_fast_path(function, jnp.ones(3)) == 0


def explained() -> None:
    (line,) = pccl_jax.explain(lambda x: pccl_jax.psum(x, comm=WORLD), jnp.ones(4)).lines
    assert (line.axis, line.ranks) == (f"a communicator of {N} processes", N), line
    assert line.algorithm in OWN, line


def typed() -> None:
    """Types that lax's collectives keep: weak ones, and those over a mesh of one device."""
    calls: dict[str, Callable[[Any], Any]] = {
        "psum": partial(pccl_jax.psum, comm=WORLD),
        "pmax": partial(pccl_jax.pmax, comm=WORLD),
        "gather": partial(pccl_jax.all_gather, comm=WORLD),
        "scatter": lambda x: pccl_jax.psum_scatter(x * jnp.ones((N, 1), bool), comm=WORLD),
    }
    for name, call in calls.items():
        assert jax.eval_shape(call, 2.0).weak_type, name
    mesh = jax.make_mesh((1,), ("x",), devices=jax.local_devices()[:1])
    x = jax.device_put(np.arange(3, dtype=np.float32), jax.NamedSharding(mesh, jax.P("x")))

    def loss(x):
        return sum(call(x).sum() for name, call in calls.items() if name != "pmax")

    right = np.full(3, 1 + 2 * N, np.float32)
    for body in (loss, lambda x: loss(x)[None]):
        inside = jax.shard_map(body, mesh=mesh, in_specs=jax.P("x"), out_specs=jax.P("x"))
        program = loss if body is loss else lambda x, f=inside: f(x).sum()
        with jax.set_mesh(mesh):
            all_equal(jax.grad(program)(x), right, "outside of jit")
            check(jax.grad(program), x, right)


def exported() -> None:
    """No algorithm has to be named: there is no lax to leave it to."""
    check_off = [jax.export.DisabledSafetyCheck.custom_call("pccl_ordered_collective")]
    export = jax.export.export(
        jax.jit(lambda x: pccl_jax.psum(x, comm=WORLD)), disabled_checks=check_off
    )
    rows = numbers(N, (9,), np.float32)
    check(export(rows[R]).call, rows[R], rows.sum(0))
    (symbol,) = jax.export.symbolic_shape("n")
    with pytest.raises(NotImplementedError, match="shapes without symbols"):
        export(jax.ShapeDtypeStruct((symbol,), np.float32))


def joined_by_threads() -> None:
    """Threads that use a communicator for the first time at once: it is joined once."""
    for _ in range(3):
        comm = WORLD.Dup()
        programs = [
            jax.jit(lambda x, i=i: i * pccl_jax.psum(x, comm=comm))  # noqa: B023 (run in the turn)
            for i in range(3)
        ]
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda program: program.trace(1.0), programs))
        for i, program in enumerate(programs):
            check(program, np.float32(R), np.float32(i * N * (N - 1) / 2))


def one_program() -> None:
    """Beside collectives of one program over all processes, which init() has joined."""
    assert jax.process_count() == N
    mesh = Mesh(np.array(jax.devices()), ("x",))
    rows = numbers(N, (8,), np.float32)
    over_mesh = per_device(lambda x: pccl_jax.psum(x, "x"), mesh)
    half = WORLD.Split(R // 2)
    mine = [row for row in range(N) if row // 2 == R // 2]
    for _ in range(3):
        result = over_mesh(spread(rows, mesh))
        check(partial(pccl_jax.psum, comm=half), rows[R], rows[mine].sum(0))
        for shard in result.addressable_shards:
            all_equal(shard.data[0], rows.sum(0), "over the mesh")
    with pytest.raises(ValueError, match="this program is for"):
        per_device(lambda x: pccl_jax.psum(x, comm=WORLD), mesh)(spread(rows, mesh))


if __name__ == "__main__":
    for part in sys.argv[1:]:
        if part == "init":
            pccl_jax.init()
            continue
        with step(part):
            globals()[part]()
    report("end")
