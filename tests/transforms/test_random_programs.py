"""Random programs, each run twice: with pccl_jax and with jax.lax.

A program is a list of steps, each a few small numbers, so that a failure shrinks well. The state
is one array a rank, of whole numbers small enough that every sum is exact in any order.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.sharding import PartitionSpec as P
from meshes import algorithms, assert_same, mesh_of

import pccl_jax

MESHES = [(1,), (2,), (3,), (4,), (8,), (2, 2), (3, 2), (2, 4), (2, 1, 2), (2, 2, 2), (2, 3, 2)]
LARGEST = 2000  # elements on a rank
MODULUS = 61.0


@dataclass(frozen=True)
class Step:
    """``kind`` and where it acts; ``inner`` are the steps of a body."""

    kind: str
    axes: int
    dimension: int
    algorithm: str | None
    inner: tuple[Step, ...] = ()


class Run:
    """Interprets steps with one library's collectives, inside shard_map."""

    def __init__(self, collectives: Any, names: tuple[str, ...], check_vma: bool) -> None:
        self.collectives = collectives
        self.names = names
        self.check_vma = check_vma
        self.zero: Any = 0.0  # varies over all axes, so that every state has the same type

    def run(self, steps: tuple[Step, ...], x: Any) -> Any:
        for step in steps:
            x = lax.rem(getattr(self, step.kind)(step, x), MODULUS) + self.zero
        return x

    def call(self, name: str, step: Step, x: Any, axes: Any = None, **kw: Any) -> Any:
        if self.collectives is pccl_jax and step.algorithm in algorithms(_COLLECTIVE[name]):
            kw["algorithm"] = step.algorithm
        return getattr(self.collectives, name)(x, axes or self.axes(step), **kw)

    def axes(self, step: Step) -> tuple[str, ...]:
        """One of the ordered selections of the mesh's axes."""
        n = len(self.names)
        rotated = self.names[step.axes % n :] + self.names[: step.axes % n]
        rotated = rotated[::-1] if step.axes // n % 2 else rotated
        return rotated[: 1 + step.axes // (2 * n) % n]

    def size(self, step: Step) -> int:
        return int(lax.axis_size(self.axes(step)))

    # Collectives.

    def psum(self, step: Step, x: Any) -> Any:
        return self.call("psum", step, x)

    def pmax(self, step: Step, x: Any) -> Any:
        return x + self.call("pmax", step, lax.stop_gradient(x))

    def pmin(self, step: Step, x: Any) -> Any:
        return self.call("pmin", step, lax.stop_gradient(2 * x)) - x

    def all_gather(self, step: Step, x: Any) -> Any:
        d = step.dimension % x.ndim
        if x.size * self.size(step) > LARGEST:
            return self.psum(step, x)
        return self.call("all_gather", step, x, axis=d, tiled=True)

    def all_gather_untiled(self, step: Step, x: Any) -> Any:
        d = step.dimension % (x.ndim + 1)
        if x.size * self.size(step) > LARGEST:
            return self.psum(step, x)
        return self.call("all_gather", step, x, axis=d).sum(d)

    def psum_scatter(self, step: Step, x: Any) -> Any:
        d, n = step.dimension % x.ndim, self.size(step)
        if x.shape[d] % n:
            x = jnp.concatenate([x] * n, axis=d) if x.size * n <= LARGEST else x
        if x.shape[d] % n:
            return self.psum(step, x)
        return self.call("psum_scatter", step, x, scatter_dimension=d, tiled=True)

    def psum_scatter_untiled(self, step: Step, x: Any) -> Any:
        d = step.dimension % (x.ndim + 1)
        wide = jnp.stack([x + i for i in range(self.size(step))], axis=d)
        if self.collectives is lax:  # whose own rule for vmap of this is wrong
            return self.call("psum_scatter", step, wide, scatter_dimension=d, tiled=True).squeeze(d)
        return self.call("psum_scatter", step, wide, scatter_dimension=d)

    # What stands around them.

    def transpose(self, _: Step, x: Any) -> Any:
        return x.T

    def reshape(self, step: Step, x: Any) -> Any:
        shape = [(-1,), (x.shape[0], -1), (1, -1), (-1, x.shape[-1])][step.dimension % 4]
        x = x.reshape(shape)
        return x if x.ndim == 2 else x[None]

    def by_rank(self, step: Step, x: Any) -> Any:
        return x * (1.0 + lax.axis_index(self.axes(step)))

    def square(self, _: Step, x: Any) -> Any:
        return x * x + 1

    # What takes a body.

    def scan(self, step: Step, x: Any) -> Any:
        def body(c: Any, w: Any) -> Any:
            y = self.run(step.inner, c)
            return c + w * y.sum(), y[:1]

        carry, rows = lax.scan(body, x, jnp.arange(1.0, 3))
        return carry + rows.sum()

    def fori(self, step: Step, x: Any) -> Any:
        loop = lambda i, c: lax.rem(c + self.run(step.inner, c).sum() + i, MODULUS)  # noqa: E731
        return lax.fori_loop(0, 2, loop, x)

    def cond(self, step: Step, x: Any) -> Any:
        total = self.call("psum", step, lax.stop_gradient(x.sum()), axes=self.names)
        taken = lax.rem(total, 2.0) == 0
        return lax.cond(
            taken,
            lambda x: x + self.run(step.inner, x).sum(),
            lambda x: self.psum(step, x) + self.zero,
            x,
        )

    def vmap(self, step: Step, x: Any) -> Any:
        """Over one dimension; every row becomes a matrix that the body works on."""
        d = step.dimension % x.ndim
        f = lambda row: self.run(step.inner, row[None])  # noqa: E731
        y = jax.vmap(f, in_axes=d, out_axes=step.axes % 3)(x)
        return y.reshape(y.shape[0], -1)[:, :64]

    def own_axis(self, step: Step, x: Any) -> Any:
        if self.check_vma:
            return x
        f = lambda row: row - self.call("psum", step, 2 * row, axes="v")  # noqa: E731
        return jax.vmap(f, in_axes=step.dimension % x.ndim, axis_name="v")(x)

    def remat(self, step: Step, x: Any) -> Any:
        return jax.checkpoint(lambda x: self.run(step.inner, x))(x)

    def jit(self, step: Step, x: Any) -> Any:
        f = jax.jit(lambda x: self.run(step.inner, x))
        return f(x) + f(x + 1)

    def grad(self, step: Step, x: Any) -> Any:
        def objective(x: Any) -> Any:
            y = self.run(step.inner, x)
            return (y * jnp.arange(1.0, y.size + 1).reshape(y.shape)).sum()

        return jax.grad(objective)(x)


_COLLECTIVE = {
    "psum": "all_reduce", "pmax": "all_reduce", "pmin": "all_reduce",
    "all_gather": "all_gather", "psum_scatter": "reduce_scatter",
}  # fmt: skip
PLAIN = [
    "psum", "pmax", "pmin", "all_gather", "all_gather_untiled", "psum_scatter",
    "psum_scatter_untiled", "transpose", "reshape", "by_rank", "square", "own_axis",
]  # fmt: skip
WITH_BODY = ["scan", "fori", "cond", "vmap", "remat", "jit", "grad"]

_numbers = {
    "axes": st.integers(0, 17),
    "dimension": st.integers(0, 5),
    "algorithm": st.sampled_from([None, *algorithms()]),
}
_plain = st.builds(Step, kind=st.sampled_from(PLAIN), **_numbers)
_bodies = st.lists(_plain, min_size=1, max_size=2).map(tuple)
_steps = st.one_of(
    _plain, st.builds(Step, kind=st.sampled_from(WITH_BODY), inner=_bodies, **_numbers)
)
programs = st.lists(_steps, min_size=1, max_size=4).map(tuple)


def build(collectives: Any, steps: tuple[Step, ...], mesh: Any, check_vma: bool) -> Any:
    """The program as a function of the global array."""
    over_all = P(mesh.axis_names)

    def body(x: Any) -> Any:
        run = Run(collectives, mesh.axis_names, check_vma)
        run.zero = 0 * lax.stop_gradient(x[0, 0, 0])
        return run.run(steps, x[0])[None]

    return jax.shard_map(
        body, mesh=mesh, in_specs=over_all, out_specs=over_all, check_vma=check_vma
    )


def around(f: Callable[[Any], Any], outside: str) -> Callable[[Any], Any]:
    """What is done to the whole program."""
    if outside == "vmap":
        return lambda x: jax.vmap(f, in_axes=1, out_axes=1)(jnp.stack([x, x + 1], axis=1))
    if outside == "grad":
        weighted = lambda x: (lambda y: (y * (1 + jnp.arange(len(y)))[:, None, None]).sum())(f(x))  # noqa: E731
        return jax.grad(weighted)
    return f


@pytest.mark.timeout(600)
@settings(
    max_examples=25,
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    steps=programs,
    shape=st.sampled_from(MESHES),
    per_node=st.sampled_from(["", "1", "2", "4"]),
    check_vma=st.booleans(),
    outside=st.sampled_from(["nothing", "vmap", "grad"]),
)
def test_a_random_program_computes_what_it_computes_with_lax(
    steps: tuple[Step, ...], shape: tuple[int, ...], per_node: str, check_vma: bool, outside: str
) -> None:
    mesh = mesh_of(*shape)
    x = np.random.default_rng(len(steps)).integers(-3, 4, (mesh.size, 2, 3)).astype(np.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PCCL_RANKS_PER_NODE", per_node)
        ours, theirs = (
            jax.jit(around(build(library, steps, mesh, check_vma), outside))(x)
            for library in (pccl_jax, lax)
        )
    assert_same(ours, theirs)
