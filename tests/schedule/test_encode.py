"""The program that the executor reads."""

from __future__ import annotations

import numpy as np
import pytest

from pccl_jax.errors import ScheduleError
from pccl_jax.schedule import Action, Index, Schedule, Step, build, decode, encode, names
from pccl_jax.types import Collective


def test_layout() -> None:
    """In full, because the executor relies on it."""
    program = encode(build("hier_ring", Collective.ALL_REDUCE, 3, 2))
    assert program.dtype == np.int64
    assert program.tolist() == [
        *(1, 3, 2, 1, 4),
        *(0, Collective.REDUCE_SCATTER, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        *(1, 0, -1, -1, 0, 1, 1, Action.REDUCE, 2, 1, 0, 3),
        *(1, 0, 1, -1, 0, 0, 1, Action.COPY, 2, -1, 0, 3),
        *(0, Collective.ALL_GATHER, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    ]
    assert encode(build("rec", Collective.REDUCE_SCATTER, 2, 1)).tolist() == [
        *(1, 2, 1, 1, 1),
        *(1, 1, 0, -1, 1, 0, 1, Action.REDUCE, 1, 0, 0, 2),
    ]
    assert encode(build("latency", Collective.ALL_REDUCE, 1, 1)).tolist() == [1, 1, 1, 0, 0]


def test_round_trip() -> None:
    for collective in Collective:
        for name in names(collective):
            for nodes, local in ((1, 1), (1, 4), (4, 1), (6, 2), (8, 3), (7, 1)):
                schedule = build(name, collective, nodes, local)
                assert decode(encode(schedule), collective, name) == schedule


def test_to_must_be_a_bijection() -> None:
    step = Step(Index(keep=0), Index(), 1, Action.COPY, (0, 2))
    with pytest.raises(ScheduleError, match=r"to\.keep 0"):
        encode(Schedule(Collective.ALL_GATHER, "mine", 2, 1, True, (step,)))


@pytest.mark.parametrize(
    "program", [[], [1, 2, 1, 1], [2, 1, 1, 1, 0], [1, 2, 1, 1, 1], [1, 2, 1, 1, 1, 7] + [0] * 11]
)
def test_no_program(program: list[int]) -> None:
    with pytest.raises(ScheduleError, match="expected"):
        decode(np.array(program, dtype=np.int64), Collective.ALL_GATHER)
