"""Algorithms by name, and the only door to a schedule that runs: :func:`build` checks it."""

from __future__ import annotations

import difflib
import functools
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pccl_jax.errors import ConfigurationError, ScheduleError
from pccl_jax.schedule.checker import check
from pccl_jax.schedule.hier_nccl import HIER_NCCL, build_hier_nccl
from pccl_jax.schedule.ir import Schedule
from pccl_jax.schedule.transpose import AllGatherSteps, build_from_all_gather
from pccl_jax.schedule.vendor import MPI, build_vendor
from pccl_jax.types import Collective

#: ``builder(collective, nodes, local)`` returns the schedule for such a group.
Builder = Callable[[Collective, int, int], Schedule]

#: Choices of the dispatch layer that are not algorithms of ours: nobody may register them. Of
#: these only ``mpi`` and ``hier_nccl`` can be built.
RESERVED_NAMES = frozenset({"auto", "xla", "mpi", "hier_nccl"})


@dataclass(frozen=True, eq=False)
class _Algorithm:
    """One entry; compared by identity, so that replacing it also leaves its cache behind."""

    name: str
    builder: Builder
    collectives: frozenset[Collective]
    hierarchical: bool


_algorithms: dict[str, _Algorithm] = {}
#: They run only where their library is, so they are not among :func:`names`.
_ELSEWHERE = {
    MPI: _Algorithm(MPI, build_vendor, frozenset(Collective), hierarchical=False),
    HIER_NCCL: _Algorithm(HIER_NCCL, build_hier_nccl, frozenset(Collective), hierarchical=True),
}
_lock = threading.Lock()


def register(
    name: str,
    builder: Builder,
    collectives: Iterable[Collective] = tuple(Collective),
    *,
    hierarchical: bool = True,
    replace: bool = False,
) -> None:
    """Adds an algorithm under ``name``.

    Args:
        name: lower-case letters, digits and underscores.
        builder: ``builder(collective, nodes, local)`` returns a schedule that carries the
            same four values. It must depend on nothing else: every rank must build alike.
        collectives: the ones that it can build.
        hierarchical: whether it tells nodes apart. If not, it is always called with
            ``nodes`` = all ranks and ``local`` = 1.
        replace: whether ``name`` may be in use already.

    Raises:
        ConfigurationError: if the name is malformed, reserved or in use.
    """
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise ConfigurationError(
            f"algorithm name {name!r}: expected lower-case letters, digits and underscores"
        )
    if name in RESERVED_NAMES:
        raise ConfigurationError(f"algorithm name {name!r} is reserved; choose another")
    entry = _Algorithm(name, builder, frozenset(collectives), hierarchical)
    with _lock:
        if name in _algorithms and not replace:
            raise ConfigurationError(
                f"algorithm {name!r} is registered already; choose another name or pass "
                "replace=True"
            )
        _algorithms[name] = entry


def from_all_gather(
    name: str, steps: AllGatherSteps, hierarchical: bool, *, replace: bool = False
) -> None:
    """Adds an algorithm for all three collectives, given only its all-gather.

    For example, every rank sends its chunk to every other::

        def steps(ranks):
            return [
                Step(Index(add=k), Index(), 1, Action.COPY, (0, ranks)) for k in range(1, ranks)
            ]

        from_all_gather("direct", steps, hierarchical=False)

    Args:
        name: as for :func:`register`.
        steps: ``steps(n)`` returns the steps that all-gather among ``n`` > 1 ranks.
        hierarchical: whether the steps run among the ranks of the same index on every node,
            the rest being done within the nodes, or among all ranks.
        replace: as for :func:`register`.

    Raises:
        ConfigurationError: as :func:`register`.
    """
    builder = functools.partial(build_from_all_gather, name, steps)
    register(name, builder, hierarchical=hierarchical, replace=replace)


def names(collective: Collective | None = None) -> tuple[str, ...]:
    """The registered algorithms, oldest first; only those for ``collective`` if given."""
    with _lock:
        entries = tuple(_algorithms.values())
    return tuple(a.name for a in entries if collective is None or collective in a.collectives)


def supports(name: str, collective: Collective) -> bool:
    """Whether algorithm ``name`` can build ``collective``.

    Raises:
        ConfigurationError: if there is no such algorithm.
    """
    return collective in _find(name).collectives


def is_hierarchical(name: str) -> bool:
    """Whether algorithm ``name`` tells nodes apart, and so needs as many ranks on each.

    Raises:
        ConfigurationError: if there is no such algorithm.
    """
    return _find(name).hierarchical


def build(name: str, collective: Collective, nodes: int, local: int) -> Schedule:
    """The checked schedule of ``collective`` by ``name`` on ``nodes`` nodes of ``local`` ranks.

    A flat algorithm treats all ranks alike: its schedule has ``nodes * local`` nodes of one
    rank. Schedules are cached; the function may be called from any thread.

    Raises:
        ConfigurationError: if there is no such algorithm, if it does not support the
            collective, or if the group is empty.
        ScheduleError: if the algorithm's schedule does not implement the collective.
    """
    return _build(*_request(name, collective, nodes, local))


def draft(name: str, collective: Collective, nodes: int, local: int) -> Schedule:
    """The schedule that :func:`build` would check, unchecked: to be looked at, never to be run.

    Checking takes time that grows with the square of the group; whoever only estimates the cost
    of a schedule that may not be chosen need not pay for it. The same object is returned for the
    same arguments as long as it is cached.

    Raises:
        ConfigurationError: as :func:`build`.
        ScheduleError: if the builder's schedule is for another collective or group.
    """
    return _draft(*_request(name, collective, nodes, local))


def _request(
    name: str, collective: Collective, nodes: int, local: int
) -> tuple[_Algorithm, Collective, int, int]:
    algorithm = _find(name)
    if collective not in algorithm.collectives:
        raise ConfigurationError(
            f"algorithm {name!r} does not support {collective.label}; "
            f"these do: {', '.join(names(collective))}"
        )
    if nodes < 1 or local < 1:
        raise ConfigurationError(f"got {nodes} nodes x {local} ranks, expected at least 1 x 1")
    if not algorithm.hierarchical:
        nodes, local = nodes * local, 1
    return algorithm, collective, nodes, local


@functools.lru_cache(maxsize=1024)
def _build(algorithm: _Algorithm, collective: Collective, nodes: int, local: int) -> Schedule:
    schedule = _draft(algorithm, collective, nodes, local)
    check(schedule)
    return schedule


@functools.lru_cache(maxsize=4096)
def _draft(algorithm: _Algorithm, collective: Collective, nodes: int, local: int) -> Schedule:
    schedule = algorithm.builder(collective, nodes, local)
    got = (schedule.collective, schedule.algorithm, schedule.nodes, schedule.local)
    expected = (collective, algorithm.name, nodes, local)
    if got != expected:
        raise ScheduleError(
            f"the builder of {algorithm.name!r} returned a schedule with (collective, algorithm, "
            f"nodes, local) = {got}, expected {expected}"
        )
    return schedule


def _find(name: str) -> _Algorithm:
    with _lock:
        algorithm = _ELSEWHERE.get(name) or _algorithms.get(name)
    if algorithm is not None:
        return algorithm
    known = names()
    if name in RESERVED_NAMES:
        raise ConfigurationError(
            f"{name!r} is not a schedule of pccl_jax; the schedules are: {', '.join(known)}"
        )
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ConfigurationError(
        f"unknown algorithm {name!r}; the known ones are: {', '.join(known)}.{hint}"
    )
