"""Is a result what it should be, element for element?"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def mismatch(expected: Any, got: Any) -> str | None:
    """What differs first, in words, or None. Both results are as a contender returns them."""
    wanted, given = shards(expected), shards(got)
    if len(wanted) != len(given):
        return f"{len(given)} shards instead of {len(wanted)}"
    for rank, (want, have) in enumerate(zip(wanted, given, strict=True)):
        if (want.shape, want.dtype) != (have.shape, have.dtype):
            return f"rank {rank} has {_type(have)} instead of {_type(want)}"
        wrong = np.flatnonzero(want != have)
        if len(wrong):
            at = int(wrong[0])
            return (
                f"rank {rank} has {len(wrong)} of {want.size} elements wrong, the first at {at}: "
                f"{have.flat[at]} instead of {want.flat[at]}"
            )
    return None


def count_wrong(expected: Any, got: Any) -> int:
    """How many elements of this process differ; all of them where the shapes do."""
    wanted, given = shards(expected), shards(got)
    if [array.shape for array in wanted] != [array.shape for array in given]:
        return sum(array.size for array in wanted)
    return sum(int(np.sum(want != have)) for want, have in zip(wanted, given, strict=True))


def shards(result: Any) -> list[np.ndarray]:
    """The arrays of this process's ranks, in the order of the ranks; no copy on CPU."""
    if isinstance(result, jax.Array):
        ordered = sorted(result.addressable_shards, key=lambda shard: shard.device.id)
        return [np.asarray(shard.data) for shard in ordered]
    return [np.asarray(array) for array in result]


def _type(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)}"
