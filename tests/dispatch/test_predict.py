"""Prediction in numpy: equal to scikit-learn's, fast, among what can serve."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from synthetic import everywhere, threshold, trained_model

from pccl_jax.dispatch.model import FEATURES, Svm, parse
from pccl_jax.dispatch.predict import Predictor, choose

NAMES = ("ring", "rec", "hier_ring", "hier_rec", "latency", "xla", "mpi")


def fitted(classes: int, seed: int, c: float, gamma: float) -> tuple[StandardScaler, SVC, Svm]:
    """scikit-learn's own, on random labels, and the same as numbers."""
    rng = np.random.default_rng(seed)
    x = rng.uniform([8, 1, 0, 0], [26, 11, 9, 3], (120, 4)).round(1)
    y = rng.integers(0, classes, 120)
    scaler = StandardScaler().fit(x)
    svc = SVC(C=c, gamma=gamma).fit(scaler.transform(x), y)
    sign = -1.0 if classes == 2 else 1.0

    def floats(values: np.ndarray) -> tuple[float, ...]:
        return tuple(float(v) for v in values)

    svm = Svm(
        classes=NAMES[:classes],
        features=tuple(FEATURES),
        lowest=floats(x.min(axis=0)),
        highest=floats(x.max(axis=0)),
        mean=floats(scaler.mean_),
        scale=floats(scaler.scale_),
        gamma=gamma,
        vectors=tuple(map(floats, svc.support_vectors_)),
        counts=tuple(map(int, svc.n_support_)),
        coefficients=tuple(map(floats, sign * svc.dual_coef_)),
        intercepts=floats(sign * svc.intercept_),
    )
    return scaler, svc, svm


GRID = np.array(
    list(
        itertools.product(
            np.arange(8, 26.01, 0.5), np.arange(1, 11.01, 1), np.arange(0, 9.01, 1.5), (0, 1.5, 3)
        )
    )
)


@pytest.mark.parametrize("classes", [2, 3, 5, 7])
@pytest.mark.parametrize(("seed", "c", "gamma"), [(0, 1.0, 0.1), (1, 100.0, 1.0), (2, 0.01, 3.0)])
def test_equal_to_scikit_learn_on_a_dense_grid(
    classes: int, seed: int, c: float, gamma: float
) -> None:
    scaler, svc, svm = fitted(classes, seed, c, gamma)
    theirs = svc.predict(scaler.transform(GRID))
    np.testing.assert_array_equal(Predictor(svm).vote(GRID), theirs)
    assert len(set(theirs.tolist())) > 1 or c < 1


def test_a_trained_model_votes_alike_after_its_file() -> None:
    made = trained_model()
    again = parse(made.to_json())
    for name, svm in made.svms.items():
        np.testing.assert_array_equal(
            Predictor(again.svms[name]).vote(GRID), Predictor(svm).vote(GRID)
        )


def test_a_tie_of_votes_goes_to_the_first() -> None:
    """Three classes that beat each other in a circle, decided by the intercepts alone."""
    svm = Svm(
        NAMES[:3], ("log2_bytes",), (0.0,), (9.0,), (0.0,), (1.0,), 1.0,
        ((0.0,), (1.0,), (2.0,)), (1, 1, 1), ((0.0,) * 3, (0.0,) * 3), (1.0, -1.0, 1.0),
    )  # fmt: skip
    assert Predictor(svm).vote([[5.0]]).tolist() == [0]
    assert choose(svm, (5.0,), frozenset(NAMES[1:])) == NAMES[1]
    assert choose(svm, (5.0,), frozenset((NAMES[0], NAMES[2]))) == NAMES[2]


def test_only_what_can_serve_is_elected() -> None:
    svm = threshold("ring", "latency", 12.0)
    assert choose(svm, (5.0,), frozenset(NAMES)) == "ring"
    assert choose(svm, (20.0,), frozenset(NAMES)) == "latency"
    assert choose(svm, (20.0,), frozenset(("ring", "rec"))) == "ring"
    assert choose(svm, (20.0,), frozenset(("rec",))) is None
    assert choose(everywhere("rec"), (20.0,), frozenset(("rec",))) == "rec"


def test_a_call_takes_less_than_200_us_and_a_repeated_one_hardly_any() -> None:
    _, _, svm = fitted(7, 1, 10.0, 0.3)
    everybody = frozenset(NAMES)
    choose(svm, (9.0, 1.0, 0.0, 0.0), everybody)  # prepares the machine

    def seconds(first: float) -> float:
        start = time.perf_counter()
        choose(svm, (first, 1.0, 0.0, 0.0), everybody)
        return time.perf_counter() - start

    fresh = [seconds(10 + i / 100) for i in range(200)]
    cached = [seconds(10 + i / 100) for i in range(200)]
    # The least, as tests share their cores with others; the median is what it is without.
    assert min(fresh) < 200e-6
    assert np.median(cached) < 20e-6
