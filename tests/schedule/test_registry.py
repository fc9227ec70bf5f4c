"""Algorithms by name: users' own, errors, threads, the cache."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pccl_jax.errors import ConfigurationError, ScheduleError
from pccl_jax.schedule import (
    Action,
    Index,
    Schedule,
    Step,
    build,
    draft,
    from_all_gather,
    is_hierarchical,
    names,
    register,
    registry,
    supports,
)
from pccl_jax.types import Collective

from .brute_force import is_right, rounds, sent_chunks


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(registry, "_algorithms", dict(registry._algorithms))


def direct(ranks: int) -> Iterator[Step]:
    """Every rank sends its chunk to every other, one after the other."""
    for k in range(1, ranks):
        yield Step(Index(add=k), Index(), 1, Action.COPY, (0, ranks))


def both_ways(ranks: int) -> Iterator[Step]:
    """A ring to the right for one half of the chunks, and to the left for the other."""
    right, left = ranks // 2, (ranks - 1) // 2
    everyone = (0, ranks)
    yield Step(Index(add=1), Index(), 1, Action.COPY, everyone, times=right, stride=-1)
    if left:
        yield Step(Index(add=-1), Index(), 1, Action.COPY, everyone, times=left, stride=1)


def never(collective: Collective, nodes: int, local: int) -> Schedule:
    raise AssertionError("not to be built")


@pytest.mark.parametrize("steps", [direct, both_ways])
@pytest.mark.parametrize("hierarchical", [False, True])
def test_users_algorithm(steps: registry.AllGatherSteps, hierarchical: bool) -> None:
    from_all_gather("mine", steps, hierarchical)
    assert is_hierarchical("mine") == hierarchical
    assert names()[-1] == "mine"
    for collective in Collective:
        assert supports("mine", collective)
        for nodes, local in ((1, 1), (1, 4), (2, 1), (3, 2), (5, 3), (8, 1), (13, 1)):
            schedule = build("mine", collective, nodes, local)
            ways = 2 if collective is Collective.ALL_REDUCE else 1
            assert is_right(schedule)
            assert rounds(schedule) == ways * (schedule.nodes - 1)
            assert set(sent_chunks(schedule)) == {rounds(schedule)}


def test_a_wrong_algorithm_cannot_be_built() -> None:
    def forgetful(ranks: int) -> list[Step]:
        return list(direct(ranks))[:-1]

    from_all_gather("forgetful", forgetful, hierarchical=False)
    for collective in Collective:
        with pytest.raises(ScheduleError, match=f"{collective.label} by 'forgetful' on 4 nodes"):
            build("forgetful", collective, 2, 2)


def test_a_builder_must_build_what_was_asked_for() -> None:
    def stubborn(collective: Collective, nodes: int, local: int) -> Schedule:
        return build("ring", Collective.ALL_GATHER, nodes, local)

    register("stubborn", stubborn, hierarchical=False)
    with pytest.raises(ScheduleError, match="the builder of 'stubborn' returned"):
        build("stubborn", Collective.ALL_GATHER, 4, 1)


def test_a_draft_is_not_checked() -> None:
    """What an estimate looks at may be wrong; what runs may not. Right ones are the same object."""
    from_all_gather("half", lambda n: [*direct(n)][: n // 2], hierarchical=False)
    assert draft("half", Collective.ALL_GATHER, 5, 1).ranks == 5
    with pytest.raises(ScheduleError):
        build("half", Collective.ALL_GATHER, 5, 1)
    assert draft("ring", Collective.ALL_GATHER, 3, 2) is build("ring", Collective.ALL_GATHER, 6, 1)
    with pytest.raises(ConfigurationError, match="does not support"):
        draft("latency", Collective.ALL_GATHER, 2, 1)


def test_unknown_name() -> None:
    with pytest.raises(ConfigurationError, match=r"ring, rec.* Did you mean 'hier_ring'\?"):
        build("hier_rnig", Collective.ALL_GATHER, 2, 2)
    with pytest.raises(ConfigurationError, match=r"latency\.$"):
        supports("zzz", Collective.ALL_GATHER)
    with pytest.raises(ConfigurationError, match="unknown algorithm ''"):
        is_hierarchical("")


@pytest.mark.parametrize("name", sorted(registry.RESERVED_NAMES))
def test_reserved_names(name: str) -> None:
    with pytest.raises(ConfigurationError, match="reserved"):
        register(name, never)
    if name in ("mpi", "hier_nccl"):
        return
    with pytest.raises(ConfigurationError, match="is not a schedule"):
        build(name, Collective.ALL_GATHER, 2, 2)


@pytest.mark.parametrize("name", ["", "Ring", "my-ring", "2d", "ring "])
def test_malformed_names(name: str) -> None:
    with pytest.raises(ConfigurationError, match="lower-case"):
        register(name, never)


def test_names_in_use() -> None:
    with pytest.raises(ConfigurationError, match="replace=True"):
        register("ring", never)
    before = build("ring", Collective.ALL_GATHER, 4, 1)
    from_all_gather("ring", direct, hierarchical=False, replace=True)
    assert build("ring", Collective.ALL_GATHER, 4, 1) != before


def test_unsupported_collective() -> None:
    assert not supports("latency", Collective.ALL_GATHER)
    assert "latency" not in names(Collective.ALL_GATHER)
    with pytest.raises(ConfigurationError, match="does not support all_gather; these do: ring, "):
        build("latency", Collective.ALL_GATHER, 2, 2)


@pytest.mark.parametrize(("nodes", "local"), [(0, 1), (1, 0), (-1, 4)])
def test_empty_group(nodes: int, local: int) -> None:
    with pytest.raises(ConfigurationError, match="expected at least 1 x 1"):
        build("ring", Collective.ALL_GATHER, nodes, local)


def test_threads() -> None:
    """Registering and building at once: every thread gets what it asked for."""
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(10):
                from_all_gather(f"mine_{number}_{i}", direct, hierarchical=False)
                for name in ("ring", f"mine_{number}_{i}"):
                    assert build(name, Collective.ALL_REDUCE, 5, 1).algorithm == name
                assert names()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
