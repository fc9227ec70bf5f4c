"""The schedule of an algorithm that is not ours: one phase, taken on trust."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pccl_jax.errors import ScheduleError
from pccl_jax.schedule import (
    Intra,
    Schedule,
    Vendor,
    build,
    check,
    decode,
    encode,
    is_hierarchical,
    names,
    render,
    supports,
)
from pccl_jax.types import Collective


@pytest.mark.parametrize("collective", Collective)
def test_mpi_is_one_phase_of_all_ranks(collective: Collective) -> None:
    schedule = build("mpi", collective, 3, 2)
    assert (schedule.nodes, schedule.local) == (6, 1)
    assert schedule.phases == (Vendor(collective),)
    assert decode(encode(schedule), collective, "mpi") == schedule
    assert render(schedule).splitlines()[1:] == ["as the MPI library does it"]


def test_layout() -> None:
    program = encode(build("mpi", Collective.REDUCE_SCATTER, 4, 1)).tolist()
    assert program == [1, 4, 1, 1, 1, 2, Collective.REDUCE_SCATTER, *[0] * 10]


def test_mpi_is_no_schedule_of_ours() -> None:
    assert "mpi" not in names()
    assert not is_hierarchical("mpi")
    assert all(supports("mpi", collective) for collective in Collective)


SOUND = build("mpi", Collective.ALL_GATHER, 4, 1)


@pytest.mark.parametrize(
    "schedule",
    [
        replace(SOUND, phases=SOUND.phases * 2),
        replace(SOUND, phases=(Vendor(Collective.ALL_REDUCE),)),
        replace(SOUND, nodes=2, local=2),
        replace(SOUND, nodes=2, local=2, phases=(*SOUND.phases, Intra(Collective.ALL_GATHER))),
        replace(build("mpi", Collective.ALL_REDUCE, 4, 1), split=True),
    ],
    ids=["twice", "another collective", "nodes", "with a phase of ours", "split"],
)
def test_only_alone_and_whole(schedule: Schedule) -> None:
    with pytest.raises(ScheduleError, match="expected"):
        check(schedule)
