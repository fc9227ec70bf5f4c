"""Fits a machine's figures to measured times, so that its estimates are of this machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pccl_jax.errors import ConfigurationError
from pccl_jax.simulate.cost import estimate
from pccl_jax.simulate.machine import Machine
from pccl_jax.simulate.sweep import Timing

Floats = npt.NDArray[np.float64]
#: How to read a figure of a machine, and how to set it.
Figure = tuple[Callable[[Machine], float], Callable[[Machine, float], Machine]]

_ITERATIONS = 10
#: How strongly a figure is held at what it was: what the samples do not tell stays.
_PRIOR = 0.001
#: Figures move by no more than this factor in a step, and from where they began.
_STEP, _REACH = 4.0, 1000.0
_NUDGE = 1e-3
#: A residual beyond this factor pulls no harder than one of this size: outliers of busy machines.
_OUTLIER = 2.0

#: The figures that are fitted.
_FIGURES: tuple[Figure, ...] = (
    (lambda m: m.launch_s, lambda m, v: replace(m, launch_s=v)),
    (lambda m: m.node.latency_s, lambda m, v: replace(m, node=replace(m.node, latency_s=v))),
    (
        lambda m: m.node.bandwidth_Bps,
        lambda m, v: replace(m, node=replace(m.node, bandwidth_Bps=v)),
    ),
    (lambda m: m.node.shared_Bps, lambda m, v: replace(m, node=replace(m.node, shared_Bps=v))),
    (
        lambda m: m.network.latency_s,
        lambda m, v: replace(m, network=replace(m.network, latency_s=v)),
    ),
    (
        lambda m: m.network.bandwidth_Bps,
        lambda m, v: replace(m, network=replace(m.network, bandwidth_Bps=v)),
    ),
    (lambda m: m.reduce_Bps, lambda m, v: replace(m, reduce_Bps=v)),
)


def calibrate(machine: Machine, timings: Sequence[Timing]) -> Machine:
    """``machine`` with latencies and rates that explain ``timings`` best.

    Gauss-Newton on the logarithms of both figures and times, damped towards the figures as they
    are: those that no timing depends on, that are 0 or have no limit, do not change. The
    result has no sources.

    Args:
        machine: where to begin, e.g. ``host``.
        timings: of algorithms that :func:`~pccl_jax.simulate.estimate` knows; seconds above 0.

    Raises:
        ConfigurationError: where there are no timings, or one is not positive.
    """
    if not timings or not all(0 < t.seconds < math.inf for t in timings):
        raise ConfigurationError("expected at least one timing, all of more than 0 seconds")
    figures = [(get, put) for get, put in _FIGURES if 0 < get(machine) < math.inf]
    start = np.log([get(machine) for get, _ in figures])
    measured = np.log([t.seconds for t in timings])
    at = start.copy()
    for _ in range(_ITERATIONS):
        residual, slopes = _linearised(machine, figures, at, timings, measured)
        weights = np.minimum(1.0, math.log(_OUTLIER) / np.maximum(np.abs(residual), 1e-12))
        normal = (slopes * weights[:, None]).T @ slopes / len(timings)
        pull = (slopes * weights[:, None]).T @ residual / len(timings)
        damped = normal + _PRIOR * np.eye(at.size)
        step = np.linalg.solve(damped, -pull - _PRIOR * (at - start))
        at = np.clip(at + np.clip(step, -math.log(_STEP), math.log(_STEP)), *_reach(start))
    fitted = _with(machine, figures, at)
    return replace(fitted, sources={})  # they told of the figures as they were


def _reach(start: Floats) -> tuple[Floats, Floats]:
    return start - math.log(_REACH), start + math.log(_REACH)


def _linearised(
    machine: Machine,
    figures: Sequence[Figure],
    at: Floats,
    timings: Sequence[Timing],
    measured: Floats,
) -> tuple[Floats, Floats]:
    """float64[n]: log of estimate over measurement; float64[n, figures]: its derivatives."""
    now = _estimates(_with(machine, figures, at), timings)
    slopes = np.empty((len(timings), at.size))
    for i in range(at.size):
        nudged = at.copy()
        nudged[i] += _NUDGE
        slopes[:, i] = (_estimates(_with(machine, figures, nudged), timings) - now) / _NUDGE
    return now - measured, slopes


def _with(machine: Machine, figures: Sequence[Figure], logs: Floats) -> Machine:
    for (_, put), value in zip(figures, np.exp(logs), strict=True):
        machine = put(machine, float(value))
    return machine


def _estimates(machine: Machine, timings: Sequence[Timing]) -> Floats:
    """float64[n]: log seconds; nothing counts as a nanosecond, so that it has a logarithm."""
    return np.log(
        [
            max(estimate(t.collective, t.algorithm, t.nbytes, t.nodes, t.local, machine), 1e-9)
            for t in timings
        ]
    )
