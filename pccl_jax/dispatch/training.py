"""Fits a model to samples: the only place that needs scikit-learn.

One pipeline (standard scaler, RBF SVC) a collective. Its parameters are those with the least mean
regret in cross-validation, in which all points of a size are held out together. What is reported
comes from an outer cross-validation of the same kind around the whole of that.

- *Regret* of a choice: its time over that of the best at that point, 1 at best.
- A choice is *right* where it is the best, or ties with it: their notches overlap
  (:attr:`~pccl_jax.dispatch.samples.Sample.uncertainty_s`), or they are within ``TIE``. Of those
  that tie, the label to learn is the one that is right at most points, so that noise draws no
  borders.
- Points weigh what is lost by a wrong choice.
- Borders have to earn their place: the one algorithm with the least regret is taken everywhere
  unless the best machine is ahead of it by more than a standard error, and where sizes are too few
  to hold any out.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from pccl_jax.dispatch.model import FEATURES, Svm
from pccl_jax.dispatch.predict import Predictor
from pccl_jax.dispatch.samples import Point, Sample, Table, collectives_of

#: Times closer than this factor are not told apart, however often they were measured.
TIE = 1.02

#: Candidates of the grid search, the plainest first.
_C = (1.0, 10.0, 100.0, 1000.0)
_GAMMA = (0.03, 0.1, 0.3, 1.0, 3.0)
_FOLDS = 5
_LEAST_WEIGHT = 0.02

Parameters = tuple[float, float] | None
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Verdict:
    """What was chosen for a point that was held out.

    Attributes:
        point: which.
        best: the label; where the choice is right too, the choice.
        chosen: the algorithm.
        fastest: the one with the least time.
        regret: the time of the choice over that, at least 1.
        right: whether it is the fastest or ties with it.
    """

    point: Point
    best: str
    chosen: str
    fastest: str
    regret: float
    right: bool


@dataclass(frozen=True)
class Trained:
    """A machine, and how the way of making it did on points that it had not seen.

    Attributes:
        svm: trained on every point; its ``quality`` sums up the verdicts.
        verdicts: none where there were too few sizes to hold any out.
        confusion: ``confusion[label][chosen]`` counts the verdicts.
    """

    svm: Svm
    verdicts: tuple[Verdict, ...]
    confusion: dict[str, dict[str, int]]


def train(table: Table, progress: Progress = lambda text: None) -> dict[str, Trained]:
    """A machine for each collective of the table.

    Args:
        table: see :func:`~pccl_jax.dispatch.samples.tabulate`.
        progress: told what is being done.
    """
    trained = {}
    for collective in collectives_of(table):
        part = {p: at for p, at in table.items() if p.collective == collective}
        progress(f"{collective}: {len(part)} points")
        trained[collective] = _train(_Data.of(part))
    return trained


@dataclass(frozen=True)
class _Data:
    """The points of one collective as arrays, rows alike.

    Attributes:
        points: ``[n]``.
        names: the algorithms, ``[a]``.
        x: features, ``[n, features]``.
        times: seconds, infinite where an algorithm was not measured, ``[n, a]``.
        right: whether an algorithm is the best or ties with it, ``[n, a]``.
        groups: what is held out together: sizes to the next power of two, ``[n]``.
    """

    points: tuple[Point, ...]
    names: tuple[str, ...]
    x: Any
    times: Any
    right: Any
    groups: Any

    @classmethod
    def of(cls, table: Table) -> _Data:
        points = tuple(table)
        names = tuple(sorted({name for at in table.values() for name in at}))
        right = np.array([[_ties(at, name) for name in names] for at in table.values()])
        times = [[at[n].median_s if n in at else math.inf for n in names] for at in table.values()]
        x = np.array([[feature(point) for feature in FEATURES.values()] for point in points])
        groups = np.array([round(math.log2(point.nbytes)) for point in points])
        return cls(points, names, x, np.array(times), right, groups)

    def rows(self, index: Any) -> _Data:
        points = tuple(self.points[i] for i in index)
        return _Data(
            points, self.names, self.x[index], self.times[index], self.right[index],
            self.groups[index],
        )  # fmt: skip

    @property
    def regrets(self) -> Any:
        """``[n, a]``; what was not measured at a point is as slow as the slowest there."""
        slowest = np.where(np.isfinite(self.times), self.times, 0).max(axis=1, keepdims=True)
        return np.minimum(self.times, slowest) / self.times.min(axis=1, keepdims=True)

    @property
    def best_single(self) -> int:
        """The number of the algorithm with the least regret when it is taken everywhere."""
        return int(np.argmin(np.log(self.regrets).mean(axis=0)))

    @property
    def labels(self) -> Any:
        """The number of the algorithm to learn, ``[n]``."""
        often = self.right.sum(axis=0)
        return np.argmax(np.where(self.right, often, -1), axis=1)

    @property
    def weights(self) -> Any:
        """The mean logarithm of the others' regrets, ``[n]``."""
        others = np.isfinite(self.times).sum(axis=1) - 1
        losses = np.where(np.isfinite(self.times), np.log(self.regrets), 0).sum(axis=1)
        return np.maximum(losses / others, _LEAST_WEIGHT)


def _ties(at: Mapping[str, Sample], name: str) -> bool:
    best = min(at.values(), key=lambda sample: sample.median_s)
    if name not in at:
        return False
    gap = at[name].median_s - best.median_s
    return bool(
        gap <= (TIE - 1) * best.median_s or gap < at[name].uncertainty_s + best.uncertainty_s
    )


def _train(data: _Data) -> Trained:
    verdicts: list[Verdict] = []
    for training, held_out in _folds(data):
        svm = _fit(data.rows(training), _search(data.rows(training)))
        verdicts += _judge(svm, data.rows(held_out), data.labels[held_out])
    svm = replace(_fit(data, _search(data)), quality=_quality(data, verdicts))
    pairs = Counter((verdict.best, verdict.chosen) for verdict in verdicts)
    names = [n for n in data.names if any(n in pair for pair in pairs)]
    confusion = {label: {chosen: pairs[label, chosen] for chosen in names} for label in names}
    return Trained(svm, tuple(verdicts), confusion)


def _folds(data: _Data) -> Iterator[tuple[Any, Any]]:
    groups = len(set(data.groups.tolist()))
    if groups > 1:
        yield from GroupKFold(min(_FOLDS, groups)).split(data.x, groups=data.groups)


def _search(data: _Data) -> Parameters:
    """The parameters with the least mean logarithm of regret on what is held out; None for none."""
    folds = [(data.rows(a), data.rows(b)) for a, b in _folds(data)]
    if not folds:
        return None

    def losses(parameters: Parameters) -> Any:
        logs = [_log_regrets(_fit(seen, parameters), unseen) for seen, unseen in folds]
        return np.concatenate(logs)

    candidates = {parameters: losses(parameters) for parameters in itertools.product(_C, _GAMMA)}
    best = min(candidates, key=lambda parameters: round(float(candidates[parameters].mean()), 6))
    gains = losses(None) - candidates[best]
    error = float(gains.std()) / math.sqrt(len(gains))
    return best if gains.mean() > error else None


def _fit(data: _Data, parameters: Parameters) -> Svm:
    labels = data.labels
    if parameters is None or len(set(labels.tolist())) == 1:
        return _svm(data, (data.names[data.best_single],), None)
    c, gamma = parameters
    pipeline = make_pipeline(StandardScaler(), SVC(C=c, gamma=gamma, kernel="rbf"))
    pipeline.fit(data.x, labels, svc__sample_weight=data.weights / data.weights.mean())
    return _svm(data, tuple(data.names[i] for i in pipeline[-1].classes_), pipeline)


def _svm(data: _Data, classes: tuple[str, ...], pipeline: Any) -> Svm:
    features = tuple(FEATURES)
    lowest, highest = _floats(data.x.min(axis=0)), _floats(data.x.max(axis=0))
    if pipeline is None:
        zeros, ones = (0.0,) * len(features), (1.0,) * len(features)
        return Svm(classes, features, lowest, highest, zeros, ones, 0.0, (), (), (), ())
    scaler, svc = pipeline
    # scikit-learn shows the numbers of two classes with the sign of the second one.
    sign = -1.0 if len(classes) == 2 else 1.0
    return Svm(
        classes,
        features,
        lowest,
        highest,
        mean=_floats(scaler.mean_),
        scale=_floats(scaler.scale_),
        gamma=float(svc.gamma),
        vectors=tuple(map(_floats, svc.support_vectors_)),
        counts=tuple(int(count) for count in svc.n_support_),
        coefficients=tuple(map(_floats, sign * svc.dual_coef_)),
        intercepts=_floats(sign * svc.intercept_),
    )


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _chosen(svm: Svm, data: _Data) -> Any:
    """The number of the algorithm that a machine takes at each point, of those measured there.

    Where none of its classes was, the slowest stands for whatever is taken in its place.
    """
    columns = [data.names.index(name) for name in svm.classes]
    measured = np.isfinite(data.times)
    able = measured[:, columns]
    winners = np.array(columns)[Predictor(svm).vote(data.x, able)]
    slowest = np.argmax(np.where(measured, data.times, 0), axis=1)
    return np.where(able.any(axis=1), winners, slowest)


def _log_regrets(svm: Svm, data: _Data) -> Any:
    rows = np.arange(len(data.points))
    return np.log(data.regrets[rows, _chosen(svm, data)])


def _judge(svm: Svm, data: _Data, labels: Any) -> list[Verdict]:
    chosen = _chosen(svm, data)
    verdicts = []
    for row, (point, choice, label) in enumerate(zip(data.points, chosen, labels, strict=True)):
        right = bool(data.right[row, choice])
        fastest = int(np.argmin(data.times[row]))
        regret = float(data.times[row, choice] / data.times[row, fastest])
        best = data.names[choice if right else label]
        first = data.names[fastest]
        verdicts.append(Verdict(point, best, data.names[choice], first, regret, right))
    return verdicts


def _quality(data: _Data, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The figures of the report and of the file; regrets of the best single algorithm beside."""
    single = data.best_single
    known: dict[str, Any] = {
        "points": len(data.points),
        "sizes": len(set(data.groups.tolist())),
        "best_single": data.names[single],
        "best_single_regret_mean": round(float(data.regrets[:, single].mean()), 4),
        "held_out": len(verdicts),
    }
    if verdicts:
        held_out = np.array([verdict.regret for verdict in verdicts])
        known |= {
            "accuracy": round(float(np.mean([verdict.right for verdict in verdicts])), 4),
            "regret_mean": round(float(held_out.mean()), 4),
            "regret_p95": round(float(np.percentile(held_out, 95)), 4),
            "regret_worst": round(float(held_out.max()), 4),
        }
    return known
