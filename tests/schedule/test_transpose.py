"""The mechanical reduce-scatter, and what has none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pccl_jax.errors import ScheduleError
from pccl_jax.schedule import Action, Index, Intra, Step, transpose
from pccl_jax.types import Collective

RING = Step(Index(add=1), Index(), 1, Action.COPY, (0, 6), times=5, stride=-1)


def test_ring() -> None:
    """Rank r starts with the chunk of its right-hand neighbour and sends to its left."""
    backwards = Step(Index(add=-1), Index(add=1), 1, Action.REDUCE, (0, 6), times=5, stride=1)
    assert transpose([RING], 6) == (backwards,)


def test_doubling() -> None:
    step = Step(Index(flip=4), Index(keep=-4), 4, Action.COPY, (0, 8))
    expected = Step(Index(flip=4), Index(keep=-4, flip=4), 4, Action.REDUCE, (0, 8))
    assert transpose([step], 8) == (expected,)


def test_phases_are_reversed_and_exchanged() -> None:
    got = transpose([RING, Intra(Collective.ALL_GATHER)], 6)
    assert got == (Intra(Collective.REDUCE_SCATTER), *transpose([RING], 6))


def test_a_part_of_the_ranks() -> None:
    step = replace(RING, to=Index(add=2), senders=(1, 4), times=1, stride=0)
    assert transpose([step], 6)[0].senders == (3, 6)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "change",
    [
        {"action": Action.REDUCE},
        {"to": Index(flip=1, add=2)},
        {"first": Index(keep=-2)},
        {"first": Index(flip=1)},
        {"senders": (1, 3), "to": Index(add=4)},  # to ranks 5 and 0
    ],
)
def test_no_transpose(change: dict[str, object]) -> None:
    with pytest.raises(ScheduleError, match="Register a builder"):
        transpose([replace(RING, **change)], 6)  # type: ignore[arg-type]


def test_only_an_all_gather_has_one() -> None:
    with pytest.raises(ScheduleError, match="expected an all-gather"):
        transpose([Intra(Collective.ALL_REDUCE)], 6)
