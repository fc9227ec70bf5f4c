"""Every algorithm implements its collectives for groups of any shape, at its stated cost."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from pccl_jax.schedule import Intra, Schedule, build, is_hierarchical, names, render, supports
from pccl_jax.types import Collective

from .brute_force import is_right, rounds, sent_chunks

BUILT_IN = ("ring", "rec", "hier_ring", "hier_rec", "latency")
LARGE = [(96, 1), (12, 8), (255, 1), (85, 3), (17, 15), (256, 1), (32, 8), (2048, 1), (256, 8)]


def shapes(max_ranks: int) -> Iterator[tuple[int, int]]:
    """All (nodes, local) of up to ``max_ranks`` ranks."""
    for nodes in range(1, max_ranks + 1):
        for local in range(1, max_ranks // nodes + 1):
            yield nodes, local


def schedules(name: str, nodes: int, local: int) -> Iterator[Schedule]:
    """The algorithm's schedule of each collective that it supports."""
    for collective in Collective:
        if supports(name, collective):
            yield build(name, collective, nodes, local)


def test_built_in_names() -> None:
    assert names()[: len(BUILT_IN)] == BUILT_IN


@pytest.mark.parametrize("name", [*BUILT_IN, "hier_nccl"])
def test_proved_up_to_64_ranks(name: str) -> None:
    for nodes, local in shapes(64):
        for schedule in schedules(name, nodes, local):  # build() has checked it
            assert schedule.ranks == nodes * local


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize(("nodes", "local"), LARGE)
def test_proved_for_large_groups(name: str, nodes: int, local: int) -> None:
    for schedule in schedules(name, nodes, local):
        assert schedule.ranks == nodes * local


@pytest.mark.parametrize("name", [*BUILT_IN, "hier_nccl"])
def test_brute_force_agrees(name: str) -> None:
    for nodes, local in shapes(16):
        for schedule in schedules(name, nodes, local):
            assert is_right(schedule), render(schedule)


@pytest.mark.parametrize("name", ["ring", "rec", "hier_ring", "hier_rec"])
def test_rounds_and_traffic_are_those_on_the_label(name: str) -> None:
    for nodes, local in shapes(40):
        n = nodes if is_hierarchical(name) else nodes * local
        one_way = n - 1 if "ring" in name else math.ceil(math.log2(n))
        for schedule in schedules(name, nodes, local):
            ways = 2 if schedule.collective is Collective.ALL_REDUCE else 1
            assert rounds(schedule) == ways * one_way
            assert sent_chunks(schedule) == [ways * (n - 1)] * n


def test_latency_rounds() -> None:
    for nodes in range(1, 70):
        power_of_two = math.log2(nodes).is_integer()
        expected = math.floor(math.log2(nodes)) + (0 if power_of_two else 2)
        assert rounds(build("latency", Collective.ALL_REDUCE, nodes, 2)) == expected


def test_flat_algorithms_ignore_nodes() -> None:
    schedule = build("ring", Collective.ALL_GATHER, 3, 4)
    assert (schedule.nodes, schedule.local) == (12, 1)
    assert schedule is build("ring", Collective.ALL_GATHER, 12, 1)


@pytest.mark.parametrize("name", ["hier_ring", "hier_rec", "latency"])
def test_one_node_does_all_natively(name: str) -> None:
    for schedule in schedules(name, 1, 8):
        assert schedule.phases == (Intra(schedule.collective),)


@pytest.mark.parametrize("name", BUILT_IN)
def test_no_work_for_a_group_of_one(name: str) -> None:
    for schedule in schedules(name, 1, 1):
        assert schedule.phases == ()


@pytest.mark.parametrize("name", ["hier_ring", "hier_rec"])
def test_order_of_phases(name: str) -> None:
    within = {
        Collective.ALL_GATHER: (-1,),
        Collective.REDUCE_SCATTER: (0,),
        Collective.ALL_REDUCE: (0, -1),
    }
    for schedule in schedules(name, 6, 4):
        intra = [phase for phase in schedule.phases if isinstance(phase, Intra)]
        assert intra == [schedule.phases[at] for at in within[schedule.collective]]
