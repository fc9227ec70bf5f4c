"""What collectives are to give, by numpy, and programs that call many of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _case import assert_rows, per_rank, spread
from jax.sharding import Mesh

import pccl_jax

Groups = Sequence[Sequence[int]] | None
FOLD = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.logical_and,
    "or": np.logical_or,
}


def numbers(ranks: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Small numbers, other ones on every rank, that are exact in every type and any order."""
    count = int(np.prod(shape))
    base = (np.arange(count)[None] * 3 + np.arange(ranks)[:, None] * 5) % 7
    if np.dtype(dtype) == np.bool_:
        base = base % 2
    elif np.dtype(dtype).kind != "u":
        base = base - 3
    if np.issubdtype(dtype, np.complexfloating):
        base = base + 1j * (base % 3)
    return base.reshape(ranks, *shape).astype(dtype)


def operand(xp: Any, x: Any, op: str, chunks: int) -> Any:
    """What a rank passes: ``chunks`` times ``x``, each time another multiple of it."""
    if op == "prod":
        x = xp.where(x == 2, 2, 1).astype(x.dtype)  # powers of two do not round
    if x.dtype == np.bool_:
        return xp.concatenate([x ^ bool(c % 2) for c in range(chunks)])
    return xp.concatenate([x * xp.asarray(c % 3 + 1, x.dtype) for c in range(chunks)])


@dataclass(frozen=True)
class Over:
    """Over which devices of a mesh a collective goes."""

    mesh: Mesh
    axes: str | tuple[str, ...]
    groups: Groups = None

    @property
    def ranks(self) -> int:
        """Devices of the mesh."""
        return int(self.mesh.size)

    @property
    def size(self) -> int:
        """Ranks of a group."""
        return len(self.group_of(0))

    def group_of(self, row: int) -> list[int]:
        """The rows that take part with this one, in the order of the axis."""
        names = (self.axes,) if isinstance(self.axes, str) else self.axes
        shape = self.mesh.devices.shape
        ids = np.arange(self.ranks).reshape(shape)
        order = [self.mesh.axis_names.index(name) for name in names]
        rest = [i for i in range(len(shape)) if i not in order]
        size = int(np.prod([shape[i] for i in order]))
        for group in ids.transpose(*rest, *order).reshape(-1, size):
            for part in self.groups or [range(size)]:
                members = [int(group[i]) for i in part]
                if row in members:
                    return members
        raise AssertionError(row)


@dataclass(frozen=True)
class Check:
    """A collective call and, for each row, what it has to give."""

    name: str
    algorithm: str | None
    call: Callable[[Any], Any]
    expected: Callable[[np.ndarray, int], np.ndarray]


def checks(
    over: Over, algorithm: str | None, ops: Sequence[str] = ("sum", "max"), gather: bool = True
) -> Iterator[Check]:
    """All-reduce with every operator, all-gather and reduce-scatter on vectors."""
    common: dict[str, Any] = {"axis_index_groups": over.groups, "algorithm": algorithm}
    axes, size = over.axes, over.size

    def able(collective: str) -> bool:
        return algorithm is None or algorithm in pccl_jax.algorithms(collective)

    def folded(op: str, rows: np.ndarray, row: int, chunks: int) -> np.ndarray:
        inputs = [operand(np, rows[member], op, chunks) for member in over.group_of(row)]
        return FOLD[op].reduce(np.stack(inputs), axis=0, dtype=rows.dtype)

    def scattered(op: str, rows: np.ndarray, row: int) -> np.ndarray:
        place = over.group_of(row).index(row)
        return np.split(folded(op, rows, row, size), size)[place]

    for op in ops:
        if able("all_reduce"):
            yield Check(
                f"all_reduce {op}",
                algorithm,
                lambda x, op=op: pccl_jax.all_reduce(operand(jnp, x, op, 1), axes, op=op, **common),
                lambda rows, row, op=op: folded(op, rows, row, 1),
            )
        if able("reduce_scatter"):
            yield Check(
                f"reduce_scatter {op}",
                algorithm,
                lambda x, op=op: pccl_jax.reduce_scatter(
                    operand(jnp, x, op, size), axes, op=op, tiled=True, **common
                ),
                lambda rows, row, op=op: scattered(op, rows, row),
            )
    if gather and able("all_gather"):
        yield Check(
            "all_gather",
            algorithm,
            lambda x: pccl_jax.all_gather(x, axes, tiled=True, **common),
            lambda rows, row: np.concatenate(rows[over.group_of(row)]),
        )


def run_checks(over: Over, batch: Sequence[tuple[np.ndarray, Sequence[Check]]], what: str) -> None:
    """All checks, each on the data beside it, in one program."""

    def program(inputs: Any) -> Any:
        pairs = zip(inputs, batch, strict=True)
        return [[check.call(x) for check in found] for x, (_, found) in pairs]

    results = per_rank(program, over.mesh)([spread(rows, over.mesh) for rows, _ in batch])
    jax.block_until_ready(results)
    for (rows, found), outputs in zip(batch, results, strict=True):
        for check, output in zip(found, outputs, strict=True):
            assert_rows(
                output,
                lambda row, c=check, r=rows: c.expected(r, row),
                f"{what}: {check.name} ({check.algorithm}) of {rows.dtype}",
            )
