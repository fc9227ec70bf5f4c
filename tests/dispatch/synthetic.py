"""Made up for tests: samples with times by a formula, machines that vote by plan, a request."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from pccl_jax.dispatch import Request, select
from pccl_jax.dispatch.machine import fingerprint
from pccl_jax.dispatch.model import Model, Svm
from pccl_jax.dispatch.samples import Point, Sample, tabulate
from pccl_jax.dispatch.training import train
from pccl_jax.errors import ConfigurationError
from pccl_jax.types import Collective, Op

#: 4 KiB, summed by two nodes of four ranks.
REQUEST = Request(
    collective=Collective.ALL_REDUCE,
    op=Op.SUM,
    axis="'x'",
    shape=(1024,),
    dtype="float32",
    nbytes=4096,
    nodes=2,
    local=4,
)

#: Seconds of an algorithm at a point.
Time = Callable[[Point], float]

TIMES: dict[str, Time] = {
    "ring": lambda p: 5e-6 * (p.ranks - 1) + p.nbytes / 1e9,
    "rec": lambda p: 9e-6 * math.log2(p.ranks) + 1.4 * p.nbytes / 1e9,
    "hier_rec": lambda p: 2e-6 * p.nodes + 5e-6 + 1.15 * p.nbytes / 1e9,
}


def points(
    collectives: Iterable[str] = ("all_gather",),
    exponents: Iterable[int] = range(8, 27),
    ranks: Iterable[int] = (2, 4, 8, 16),
    nodes: Iterable[int] = (1, 2, 4),
) -> list[Point]:
    shapes = [(n, m) for n in ranks for m in nodes if m <= n]
    return [Point(c, 1 << e, n, m) for c in collectives for e in exponents for n, m in shapes]


def samples(
    where: Iterable[Point],
    times: dict[str, Time] = TIMES,
    noise: float = 0.0,
    rounds: int = 20,
) -> list[Sample]:
    """With relative noise of the medians, and the quartiles that normal times of such medians have.

    Of n normal times the quartiles are 0.674 sigma from the median, which has the standard error
    1.253 sigma / sqrt(n).
    """
    rng = np.random.default_rng(0)
    spread = noise * math.sqrt(rounds) * 0.674 / 1.253
    made = []
    for point in where:
        for name, time in times.items():
            median = time(point) * math.exp(rng.normal() * noise)
            made.append(
                Sample(point, name, median, median * (1 - spread), median * (1 + spread), rounds)
            )
    return made


def everywhere(name: str, low: float = 0.0, high: float = 40.0) -> Svm:
    """One class, in a range of log2 bytes."""
    features = ("log2_bytes",)
    return Svm((name,), features, (low,), (high,), (0.0,), (1.0,), 0.0, (), (), (), ())


def threshold(small: str, large: str, exponent: float) -> Svm:
    """``small`` below ``2^exponent`` bytes, else ``large``: a vector on each side of it."""
    return Svm(
        classes=(small, large),
        features=("log2_bytes",),
        lowest=(0.0,),
        highest=(40.0,),
        mean=(exponent,),
        scale=(1.0,),
        gamma=0.001,
        vectors=((-1.0,), (1.0,)),
        counts=(1, 1),
        coefficients=((1.0, -1.0),),
        intercepts=(0.0,),
    )


def model(**svms: Svm) -> Model:
    """Of this machine."""
    return Model(dict(fingerprint()), False, {"date": "2026-01-01"}, svms)


def trained_model() -> Model:
    """Of this machine, with borders, for two collectives."""
    table = tabulate(samples(points(("all_gather", "all_reduce"), range(8, 27, 3))))
    return model(**{name: one.svm for name, one in train(table).items()})


def assert_refused(request: Request, name: str, reason: str) -> None:
    """``name`` cannot serve: an error where the call asks for it, passed over where preferred."""
    what = f"algorithm '{name}' cannot serve this {request.collective.label} of {request.dtype} "
    with pytest.raises(ConfigurationError, match=what) as e:
        select(request, name)
    assert reason in str(e.value)
    choice = select(request, None, name)
    assert choice.algorithm == select(request).algorithm
    assert reason in choice.reason
