"""What the checker says about schedules that are wrong in a known way."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pccl_jax.errors import ScheduleError
from pccl_jax.schedule import Action, Index, Intra, Schedule, Step, build, check
from pccl_jax.types import Collective

SHIFT = Step(Index(add=1), Index(), 1, Action.COPY, (0, 4))


def gather(*phases: Any, nodes: int = 4, local: int = 1) -> Schedule:
    return Schedule(Collective.ALL_GATHER, "mine", nodes, local, True, phases)


def reduce(*phases: Any, nodes: int = 4, local: int = 1, split: bool = True) -> Schedule:
    return Schedule(Collective.ALL_REDUCE, "mine", nodes, local, split, phases)


def refusal(schedule: Schedule) -> str:
    with pytest.raises(ScheduleError) as caught:
        check(schedule)
    return str(caught.value)


def test_refusal_names_everything() -> None:
    step = replace(SHIFT, times=3, stride=-2)
    assert refusal(gather(step, nodes=4, local=1)) == (
        "all_gather by 'mine' on 4 nodes x 1 ranks, phase 0, round 1: rank 0 sends chunk 2, of "
        "which it holds 0 contributions; to copy it, expected the finished result"
    )


def test_refusal_names_ranks_and_chunks_of_the_whole_group() -> None:
    message = refusal(gather(replace(SHIFT, first=Index(add=1)), local=3))
    assert "rank 0 sends chunk 3," in message


def test_incomplete() -> None:
    assert "at the end: rank 0 ends with chunk 1, of which it holds 0" in refusal(gather(SHIFT))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"to": Index(keep=2)}, "to.keep 2, expected -1"),
        ({"to": Index(flip=4)}, "rank 0 sends to node 0 ^ 4 = 4, expected one below 4"),
        ({"to": Index(flip=-1)}, "0 ^ -1 = -1, expected one below 4"),
        ({"to": Index()}, "rank 0 sends to itself"),
        ({"to": Index(flip=1, add=1)}, "rank 1 sends to itself"),
        ({"count": 0}, "got count 0, expected 1 to 4"),
        ({"count": 5}, "got count 5, expected 1 to 4"),
        ({"times": 0}, "got times 0"),
        ({"senders": (0, 5)}, "got senders (0, 5)"),
        ({"senders": (-1, 4)}, "got senders (-1, 4)"),
        ({"senders": (2, 2)}, "got senders (2, 2)"),
        ({"senders": (0, 1, 2)}, "got senders (0, 1, 2)"),
        ({"action": Action.REDUCE}, "an all_gather reduces nothing"),
        ({"action": 0}, "got action 0"),
        ({"stride": 2**31}, "expected a 32-bit integer"),
        ({"count": 1.0}, "got the number 1.0"),
    ],
)
def test_malformed_steps(change: dict[str, Any], expected: str) -> None:
    assert expected in refusal(gather(replace(SHIFT, **change)))


def test_malformed_schedules() -> None:
    assert "expected an Intra, an Inter or a Step" in refusal(gather("step"))
    assert "expected at least one node" in refusal(gather(nodes=0))
    assert "split=True" in refusal(replace(gather(), split=False))
    assert "expected none where" in refusal(gather(Intra(Collective.ALL_GATHER)))
    scatter = Intra(Collective.REDUCE_SCATTER)
    assert "expected Intra(ALL_REDUCE)" in refusal(reduce(scatter, local=2, split=False))
    assert "got COMBINE" in refusal(reduce(replace(SHIFT, action=Action.COMBINE)))


def test_numbers_may_be_numpy_integers() -> None:
    step = replace(SHIFT, to=Index(add=np.int64(1)), times=np.int32(3), stride=np.int64(-1))
    check(gather(step))


def test_sending_what_was_given_away() -> None:
    give = replace(SHIFT, action=Action.REDUCE)
    assert "rank 0 sends chunk 0" in refusal(reduce(give, give))
    assert "phase 1" in refusal(reduce(give, give))


def test_reducing_into_what_was_given_away() -> None:
    """The buffer still has the number that was given away: it would count twice."""
    everything = replace(SHIFT, count=4, action=Action.REDUCE)
    assert "rank 1 receives chunk 0" in refusal(reduce(everything))


def test_counting_twice() -> None:
    one = Step(Index(flip=1), Index(), 1, Action.COMBINE, (0, 4))
    assert "counted once" in refusal(reduce(one, one, split=False))
    within = Intra(Collective.ALL_REDUCE)
    for local in (2, 3):
        assert "counted once" in refusal(reduce(within, within, local=local, split=False))


def test_a_coincidence_of_numbers_does_not_pass() -> None:
    """2 nodes x 2 ranks: a node's sum counted twice weighs as much as the sum of all."""
    phases = [Intra(Collective.ALL_REDUCE), Intra(Collective.REDUCE_SCATTER)]
    assert "expected it finished then" in refusal(reduce(*phases, nodes=2, local=2))


def test_receiving_twice_is_waste() -> None:
    assert "hold the finished result already" in refusal(gather(SHIFT, SHIFT))


def test_a_reduction_through_a_root_passes() -> None:
    """Reduce to rank 0 and copy back: no transpose of anything, and right."""
    up = [Step(Index(add=-k), Index(keep=0), 4, Action.REDUCE, (k, k + 1)) for k in (1, 2, 3)]
    down = [Step(Index(add=k), Index(keep=0), 4, Action.COPY, (0, 1)) for k in (1, 2, 3)]
    check(reduce(*up, *down))
    assert "counted once" not in refusal(reduce(*up, *down[:2]))


def test_it_is_fast() -> None:
    """Generous limits, for a busy machine: it takes 0.2 ms and 0.5 s on an idle one."""
    for ranks, limit_s in ((8, 0.005), (2048, 10)):
        schedule = build("ring", Collective.ALL_GATHER, ranks, 1)
        times_s = []
        for _ in range(20 if ranks == 8 else 1):
            start_s = time.perf_counter()
            check(schedule)
            times_s.append(time.perf_counter() - start_s)
        assert min(times_s) < limit_s
