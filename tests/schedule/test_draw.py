"""The pictures of schedules."""

from __future__ import annotations

from textwrap import dedent

from pccl_jax.schedule import build, names, render
from pccl_jax.types import Collective


def picture(text: str) -> str:
    return dedent(text).strip()


def test_every_message() -> None:
    assert render(build("rec", Collective.ALL_GATHER, 3, 1)) == picture(
        """
        all_gather by rec, 3 ranks
        round 1  copy  r -> r-1  0->2 [0]  1->0 [1]  2->1 [2]
        round 2  copy  r -> r-2  0->1 [0]  1->2 [1]  2->0 [2]
        """
    )


def test_hierarchical() -> None:
    assert render(build("hier_ring", Collective.REDUCE_SCATTER, 3, 2)) == picture(
        """
        reduce_scatter by hier_ring, 6 ranks on 3 nodes of 2; between nodes, r is the node, \
in 2 groups at once, and c stands for chunk 2 c + index
        within each node: reduce_scatter among 2 ranks
        round 1  reduce  r -> r-1  0->2 [1]  1->0 [2]  2->1 [0]
        round 2  reduce  r -> r-1  0->2 [2]  1->0 [0]  2->1 [1]
        """
    )


def test_whole_vectors_have_no_chunks() -> None:
    assert render(build("latency", Collective.ALL_REDUCE, 3, 1)) == picture(
        """
        all_reduce by latency, 3 ranks
        round 1  reduce  r -> r-2  2->0
        round 2  combine  r -> r^1  0->1  1->0
        round 3  copy  r -> r+2  0->2
        """
    )


def test_rules_for_many_ranks() -> None:
    assert render(build("ring", Collective.ALL_REDUCE, 256, 1)) == picture(
        """
        all_reduce by ring, 256 ranks
        rounds 1-255  reduce  r -> r-1  [r+1+i]  mod 256
        rounds 256-510  copy  r -> r+1  [r-i]  mod 256
        """
    )
    assert "round 2  copy  r -> r^2  [2 from (r&-2)]  mod 16" in render(
        build("rec", Collective.ALL_GATHER, 16, 1)
    )
    assert "reduce  r -> r-8  for 8 <= r < 9  mod 9" in render(
        build("latency", Collective.ALL_REDUCE, 9, 1)
    )


def test_ranges_wrap_around() -> None:
    last = render(build("rec", Collective.ALL_GATHER, 6, 1)).splitlines()[-1]
    assert last.endswith("5->1 [5,0]")


def test_all_can_be_drawn() -> None:
    for collective in Collective:
        for name in names(collective):
            for nodes in (1, 2, 8, 9):
                assert collective.label in render(build(name, collective, nodes, 2))
