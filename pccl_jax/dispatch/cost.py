"""The cheapest algorithm by the cost model: where nothing was learned, or not about such a request.

The machine is ``PCCL_MACHINE``, a name or the path of a file; else what tuning has written about
this one into the user's folder; else ``host``, cautious figures for CPU hosts. Tuning measures CPU
devices; for GPUs the machine is ``PCCL_MACHINE`` or ``h200``.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import threading
from dataclasses import asdict
from pathlib import Path

from pccl_jax.dispatch.candidates import own
from pccl_jax.dispatch.choice import Choice, Request
from pccl_jax.dispatch.machine import machine_file
from pccl_jax.errors import ConfigurationError
from pccl_jax.simulate import Machine, estimate, load_machine
from pccl_jax.types import Collective

DEFAULT_MACHINE = "host"
DEFAULT_GPU_MACHINE = "h200"

#: What is chosen among: algorithms that somebody has registered are taken where they are named, or
#: where a model has learned when. Of equals the first.
ALGORITHMS = ("hier_rec", "hier_ring", "rec", "ring", "latency")

#: The model does not tell times apart that are closer than this factor.
_EQUAL = 1.005

_LOG = logging.getLogger("pccl_jax")
_lock = threading.Lock()


def machine(platform: str = "cpu") -> Machine:
    """What the cost model reckons with for devices of ``platform``.

    Raises:
        ConfigurationError: where ``PCCL_MACHINE`` names what does not exist or is wrong.
    """
    named = os.environ.get("PCCL_MACHINE", "")
    with _lock:
        if named:
            return _named(named)
        return _found(machine_file()) if platform == "cpu" else _named(DEFAULT_GPU_MACHINE)


def describe() -> str:
    """The machine in words that are equal exactly where the cost model chooses alike.

    Raises:
        ConfigurationError: as :func:`machine`.
    """
    facts = asdict(machine()) | {"description": "", "sources": ""}
    digest = hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest()
    return f"machine {facts['name']} {digest}"


def cheapest(request: Request) -> Choice:
    """The algorithm of ours that takes the least time, and what the model thinks it takes."""
    serving = own(request)
    able = tuple(name for name in ALGORITHMS if name in serving)
    on = machine(request.platform)
    times = _times(request.collective, able, request.nbytes, request.nodes, request.local, on)
    best = min(times.values())
    name = next(name for name, seconds in times.items() if seconds <= best * _EQUAL)
    reason = f"cost model of {on.name}: {times[name] * 1e6:.0f} us"
    others = {other: seconds for other, seconds in times.items() if other != name}
    if others:
        second = min(others, key=lambda other: others[other])
        reason += f", {second} {others[second] * 1e6:.0f} us"
    uneven = "" if request.even else "; its nodes have different numbers of ranks"
    return Choice(request, name, reason + uneven)


def predicted_s(choice: Choice) -> float:
    """Seconds that the collective takes by its algorithm on :func:`machine`, by the cost model.

    Raises:
        ConfigurationError: as :func:`machine`.
    """
    r, name = choice.request, choice.algorithm
    if r.ranks == 1 or r.nbytes == 0:
        return 0.0
    return _times(r.collective, (name,), r.nbytes, r.nodes, r.local, machine(r.platform))[name]


@functools.lru_cache(maxsize=4096)
def _times(
    collective: Collective, names: tuple[str, ...], nbytes: int, nodes: int, local: int, on: Machine
) -> dict[str, float]:
    return {name: estimate(collective, name, nbytes, nodes, local, on) for name in names}


@functools.cache
def _named(name: str) -> Machine:
    try:
        return load_machine(Path(name) if os.sep in name or name.endswith(".json") else name)
    except ConfigurationError as error:
        raise ConfigurationError(f"PCCL_MACHINE={name}: {error}") from error


@functools.cache
def _found(path: Path) -> Machine:
    try:
        if path.is_file():
            return load_machine(path)
    except (ConfigurationError, OSError) as error:
        _LOG.warning("pccl_jax goes on with the machine %r: %s", DEFAULT_MACHINE, error)
    return load_machine(DEFAULT_MACHINE)
