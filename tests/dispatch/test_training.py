"""Training: learns borders where there are any, and none where there is noise or too little."""

from __future__ import annotations

import math
import random
from dataclasses import asdict

import pytest
from synthetic import TIMES, points, samples

from pccl_jax.dispatch.samples import Point, Sample, tabulate
from pccl_jax.dispatch.training import Trained, train


def trained_on(*made: Sample) -> Trained:
    (one,) = train(tabulate(made)).values()
    return one


def test_borders_are_learnt_and_hold_for_unseen_sizes() -> None:
    one = trained_on(*samples(points(), noise=0.02))
    quality = one.svm.quality
    assert len(one.svm.classes) > 1
    assert quality["held_out"] == quality["points"] == len(points())
    assert quality["accuracy"] > 0.85
    assert quality["regret_mean"] < 1.03
    assert quality["regret_mean"] < quality["best_single_regret_mean"]
    assert 1 <= quality["regret_p95"] <= quality["regret_worst"]


def test_figures_are_those_of_the_verdicts() -> None:
    one = trained_on(*samples(points(exponents=range(8, 24, 2)), noise=0.05))
    n = len(one.verdicts)
    counts = {(a, b): k for a, row in one.confusion.items() for b, k in row.items()}
    assert sum(counts.values()) == n
    assert sum(k for (a, b), k in counts.items() if a == b) == sum(v.right for v in one.verdicts)
    assert one.svm.quality["accuracy"] == pytest.approx(
        sum(v.right for v in one.verdicts) / n, abs=1e-3
    )
    mean = sum(v.regret for v in one.verdicts) / n
    assert one.svm.quality["regret_mean"] == pytest.approx(mean, abs=1e-3)
    assert len({v.point for v in one.verdicts}) == n
    assert all(v.regret >= 1 for v in one.verdicts)


def test_no_size_leaks() -> None:
    """The best algorithm of a size is a coin toss: what is held out cannot be known."""
    coin = random.Random(3)
    sides = {e: coin.choice(["ring", "rec"]) for e in range(8, 40)}
    made = [
        Sample(p, name, t, t, t)
        for p in points(exponents=range(8, 40), ranks=[4], nodes=[1])
        for name in ("ring", "rec")
        for t in (1.0 if sides[int(math.log2(p.nbytes))] == name else 2.0,)
    ]
    assert trained_on(*made).svm.quality["accuracy"] < 0.75


def test_training_is_deterministic() -> None:
    made = samples(points(exponents=range(8, 22, 3), ranks=[4, 8]), noise=0.03)
    first, second = trained_on(*made), trained_on(*made)
    assert asdict(first.svm) == asdict(second.svm)


def test_ties_within_the_noise_are_no_mistakes() -> None:
    """Two algorithms that take the same time but for noise: no borders, and nothing is wrong."""
    same = {"ring": TIMES["ring"], "rec": TIMES["ring"]}
    one = trained_on(*samples(points(ranks=[4, 8]), same, noise=0.02))
    assert len(one.svm.classes) == 1
    assert one.svm.quality["accuracy"] > 0.9
    clear = {"ring": TIMES["ring"], "rec": lambda p: 1.5 * TIMES["ring"](p)}
    assert trained_on(*samples(points(ranks=[4]), clear, noise=0.02)).svm.classes == ("ring",)


def test_one_class_needs_no_vectors() -> None:
    one = trained_on(*samples(points(), {"ring": lambda p: 1.0, "rec": lambda p: 2.0}))
    assert (one.svm.classes, one.svm.vectors, one.svm.counts) == (("ring",), (), ())
    assert (one.svm.quality["accuracy"], one.svm.quality["regret_worst"]) == (1, 1)


@pytest.mark.parametrize("exponents", [[10], [10, 20], [10, 11, 12]])
def test_few_points(exponents: list[int]) -> None:
    one = trained_on(*samples(points(exponents=exponents, ranks=[4], nodes=[1])))
    assert one.svm.classes
    assert one.svm.quality["held_out"] == (0 if len(exponents) == 1 else len(exponents))
    assert ("accuracy" in one.svm.quality) == (len(exponents) > 1)


def test_an_algorithm_may_be_missing_at_some_points() -> None:
    """mpi is the best where it was measured, on one size in two."""
    made = samples(points(exponents=range(8, 20), ranks=[2, 8], nodes=[1, 2]))
    made += [
        Sample(s.point, "mpi", s.median_s / 3, s.p25_s / 3, s.p75_s / 3)
        for s in made
        if s.algorithm == "ring" and math.log2(s.point.nbytes) % 2
    ]
    one = trained_on(*made)
    assert all(math.isfinite(v.regret) for v in one.verdicts)
    without = [v for v in one.verdicts if math.log2(v.point.nbytes) % 2 == 0]
    assert without
    assert all(v.chosen != "mpi" for v in without)


def test_no_samples_no_machines() -> None:
    assert train({}) == {}
    assert tabulate([Sample(Point("all_gather", 8, 2, 1), "ring", 1, 1, 1)]) == {}
