"""Chooses the algorithm. The first that applies:

1. a group of one: ``xla``, there is nothing to move;
2. what the call asked for, ``algorithm=``; it has to be able to serve;
3. what ``using(...)`` or ``PCCL_ALGORITHM`` prefers, where it can serve;
4. what the learned model says, where the request is in the range that it has learned from;
5. the cheapest of our own algorithms by the cost model.

A hierarchical algorithm that was asked for is taken as its flat relative where nodes have different
numbers of ranks. 4 and 5 choose only among what can serve.
"""

from __future__ import annotations

import difflib
from dataclasses import replace

from pccl_jax import schedule
from pccl_jax.dispatch.candidates import candidates
from pccl_jax.dispatch.choice import Choice, Request
from pccl_jax.dispatch.cost import cheapest
from pccl_jax.dispatch.learned import learned
from pccl_jax.dispatch.predict import choose
from pccl_jax.dispatch.samples import Point
from pccl_jax.dispatch.vendor import vendor_obstacle
from pccl_jax.errors import ConfigurationError
from pccl_jax.types import Collective

#: Algorithms that hand the collective to somebody else's implementation.
VENDOR_ALGORITHMS = ("xla", "mpi")

#: These, and what is taken only where it is asked for.
_OF_OTHERS = (*VENDOR_ALGORITHMS, "hier_nccl")

_FLAT = {"hier_ring": "ring", "hier_rec": "rec"}


def check_algorithm(name: str | None, collective: Collective | None = None) -> None:
    """Raises ConfigurationError unless ``name`` is None or an algorithm for ``collective``."""
    if name is None or name in _OF_OTHERS:
        return
    known = [*_OF_OTHERS, *schedule.names()]
    if name not in known:
        close = difflib.get_close_matches(str(name), known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ConfigurationError(
            f"unknown algorithm {name!r}.{hint} Known algorithms: {', '.join(known)}."
        )
    if collective is not None and not serves(name, collective):
        able = [n for n in known if serves(n, collective)]
        raise ConfigurationError(
            f"algorithm {name!r} has no {collective.label}; for that use one of {', '.join(able)}."
        )


def select(request: Request, wished: str | None = None, preferred: str | None = None) -> Choice:
    """Chooses the algorithm for ``request``.

    Args:
        request: the static facts.
        wished: ``algorithm=`` of the call itself: it must apply.
        preferred: from ``using(...)`` or ``PCCL_ALGORITHM``: taken where it applies.

    Raises:
        ConfigurationError: for an unknown algorithm, or a wished one that cannot serve.
    """
    check_algorithm(wished, request.collective)
    check_algorithm(preferred)
    if request.ranks == 1:
        return Choice(request, "xla", "a group of one has nothing to move")
    if wished is not None:
        if obstacle := vendor_obstacle(wished, request):
            what = f"{request.collective.label} of {request.dtype} over {request.over}"
            raise ConfigurationError(f"algorithm {wished!r} cannot serve this {what}: {obstacle}.")
        return _named(request, wished, "asked for by the call")
    if preferred is not None and (obstacle := vendor_obstacle(preferred, request)):
        choice = _decide(request)
        return replace(choice, reason=f"{choice.reason}; {preferred} was preferred, but {obstacle}")
    if preferred is not None and serves(preferred, request.collective):
        return _named(request, preferred, "asked for by using() or PCCL_ALGORITHM")
    return _decide(request)


def serves(name: str, collective: Collective) -> bool:
    """Whether the algorithm has the collective."""
    return name in _OF_OTHERS or schedule.supports(name, collective)


def _named(request: Request, name: str, reason: str) -> Choice:
    if not request.even and name in _FLAT:
        reason = f"{name} {reason}, but its nodes have different numbers of ranks"
        return Choice(request, _FLAT[name], reason)
    return Choice(request, name, reason)


def _decide(request: Request) -> Choice:
    return _by_model(request) or cheapest(request)


def _by_model(request: Request) -> Choice | None:
    """What the learned model says, where there is one and the request is like what it has seen."""
    use = learned()
    svm = None if use is None else use.model.svms.get(request.collective.label)
    if svm is None or use is None:
        return None
    if request.platform != "cpu" and not use.model.simulated:  # measured on CPU devices
        return None
    point = _point(request)
    if not svm.covers(point):
        return None
    name = choose(svm, svm.values(point), candidates(request))
    return None if name is None else Choice(request, name, f"learned: {use}")


def _point(request: Request) -> Point:
    return Point(
        request.collective.label,
        request.nbytes,
        request.ranks,
        request.nodes,
        request.ranks_per_process,
        request.dtype,
    )
