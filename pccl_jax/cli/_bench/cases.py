"""One collective on one size: shapes, an operand that is exact in any order, bus bandwidth."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

#: Name of the mesh axis along which a collective works.
AXIS = "x"

#: Name of the other one: groups that work at the same time, each on its own.
GROUPS = "group"

#: Operands repeat a block of this many random elements. A prime, so that no chunk is like
#: another and a chunk in the wrong place is noticed.
_PERIOD = 65537


@dataclass(frozen=True)
class Case:
    """A collective, a dtype, a size and a number of ranks.

    Attributes:
        collective: its label.
        dtype: element type by name.
        nbytes: bytes of the larger array of each rank, as asked for: the operand of an
            all_reduce or reduce_scatter, the result of an all_gather.
        ranks: number of devices in each group; the others do the same at the same time.
    """

    collective: str
    dtype: str
    nbytes: int
    ranks: int

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(jnp.dtype(self.dtype).itemsize)

    @property
    def chunk(self) -> int:
        """Elements of one rank's share."""
        return max(1, self.nbytes // (self.itemsize * self.ranks))

    @property
    def count(self) -> int:
        """Elements of the larger array: ``nbytes`` rounded to what divides by the ranks."""
        return self.chunk * self.ranks

    @property
    def moved_bytes(self) -> int:
        """Bytes of ``count`` elements."""
        return self.count * self.itemsize

    @property
    def op(self) -> str:
        """The reduction, ``none`` for an all_gather."""
        return "none" if self.collective == "all_gather" else "sum"

    @property
    def operand_elements(self) -> int:
        """Elements of one rank's operand."""
        return self.chunk if self.collective == "all_gather" else self.chunk * self.ranks

    def algbw_GBps(self, seconds: float) -> float:
        """Algorithm bandwidth in GB/s, S / t of :meth:`busbw_GBps`."""
        return self.moved_bytes / seconds / 1e9

    def busbw_GBps(self, seconds: float) -> float:
        """Bus bandwidth in GB/s: what each rank's link would carry under an ideal algorithm.

        With S the bytes of the larger array and n ranks it is S / t, times 2 (n - 1) / n for
        an all_reduce and (n - 1) / n for an all_gather or reduce_scatter. Source: NVIDIA
        nccl-tests, doc/PERFORMANCE.md,
        https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
        """
        passes = 2 if self.collective == "all_reduce" else 1
        share = passes * (self.ranks - 1) / self.ranks
        return self.algbw_GBps(seconds) * share


@dataclass
class Problem:
    """A case on a mesh, with the operand that all contenders share. Drop it to free that."""

    case: Case
    mesh: jax.sharding.Mesh
    sharding: Any = field(init=False)

    def __post_init__(self) -> None:
        self.sharding = jax.NamedSharding(self.mesh, self.spec)

    @property
    def spec(self) -> jax.P:
        """Of what differs from rank to rank."""
        return jax.P(self.mesh.axis_names)

    @property
    def out_spec(self) -> jax.P:
        """Of the result: that of an all_reduce is the same on all ranks of a group."""
        if self.case.collective != "all_reduce":
            return self.spec
        return jax.P(tuple(name for name in self.mesh.axis_names if name != AXIS))

    @property
    def operand_type(self) -> jax.ShapeDtypeStruct:
        """Global shape, dtype and sharding of the operand."""
        elements = self.mesh.size * self.case.operand_elements
        dtype = jnp.dtype(self.case.dtype)
        return jax.ShapeDtypeStruct((elements,), dtype, sharding=self.sharding)

    @functools.cached_property
    def operand(self) -> jax.Array:
        """The operands of all ranks, one after the other."""
        elements = self.case.operand_elements

        def of_rank(index: Any) -> np.ndarray:
            return self.operand_of((index[0].start or 0) // elements)

        return jax.make_array_from_callback(self.operand_type.shape, self.sharding, of_rank)

    def operand_of(self, rank: int) -> np.ndarray:
        """The operand of one rank: integers whose sum over all ranks is exact in any order."""
        return np.resize(self._block(rank), self.case.operand_elements)

    def _block(self, rank: int) -> np.ndarray:
        dtype = jnp.dtype(self.case.dtype)
        limit = min(8, max(1, _largest_exact(dtype) // self.case.ranks))
        block = np.random.default_rng(rank).integers(-limit, limit + 1, _PERIOD, np.int8)
        return block.astype(dtype)

    def expected(self) -> list[np.ndarray]:
        """The right result of each rank of this process, in the order of the devices' ids."""
        axis, me = self.mesh.axis_names.index(AXIS), jax.process_index()
        groups = np.moveaxis(self.mesh.devices, axis, -1).reshape(-1, self.case.ranks)
        numbers = np.moveaxis(np.arange(self.mesh.size).reshape(self.mesh.devices.shape), axis, -1)
        by_id = {
            device.id: self._expected_of(numbers.reshape(groups.shape)[group], place)
            for (group, place), device in np.ndenumerate(groups)
            if device.process_index == me
        }
        return [by_id[number] for number in sorted(by_id)]

    def _expected_of(self, group: np.ndarray, place: int) -> np.ndarray:
        if self.case.collective == "all_gather":
            return np.concatenate([self.operand_of(int(rank)) for rank in group])
        total = self._block(int(group[0]))
        for rank in group[1:]:
            total = total + self._block(int(rank))
        whole = np.resize(total, self.case.operand_elements)
        if self.case.collective == "all_reduce":
            return whole
        return whole[place * self.case.chunk : (place + 1) * self.case.chunk]


def _largest_exact(dtype: Any) -> int:
    """The integer up to which every integer has a place in ``dtype``."""
    if jnp.issubdtype(dtype, jnp.integer):
        return int(np.iinfo(dtype).max)
    finfo: Any = jnp.finfo  # numpy's does not know bfloat16.
    return int(math.ldexp(1, finfo(dtype).nmant + 1))
