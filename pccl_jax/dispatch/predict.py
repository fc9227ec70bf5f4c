"""The vote of a support vector machine, in numpy alone, as scikit-learn's SVC.predict has it.

For each pair of classes ``i < j`` the decision is ``sum_v c_v K(x, v) + b``, over the support
vectors of both classes, with ``K(x, v) = exp(-gamma |x - v|^2)``: positive is a vote for ``i``,
else for ``j``. Most votes win, the first of equals. Source: C.-C. Chang and C.-J. Lin, "LIBSVM: a
library for support vector machines", section 7, and scikit-learn's user guide on SVC.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pccl_jax.dispatch.model import Svm

Floats = np.ndarray[Any, np.dtype[np.float64]]


class Predictor:
    """A machine ready to vote."""

    def __init__(self, svm: Svm) -> None:
        self.classes = svm.classes
        k = len(svm.classes)
        self._pairs = [(i, j) for i in range(k) for j in range(i + 1, k)]
        self._first, self._second = np.array(self._pairs, int).reshape(-1, 2).T
        self._for_first, self._for_second = np.eye(k)[self._first], np.eye(k)[self._second]
        self._mean, self._scale = np.array(svm.mean), np.array(svm.scale)
        self._gamma = svm.gamma
        self._vectors = np.array(svm.vectors, float).reshape(-1, len(svm.features))
        self._weights = _pair_weights(svm, self._pairs)
        self._intercepts = np.array(svm.intercepts, float)

    def decisions(self, values: Any) -> Floats:
        """Of points ``[n, features]`` for each pair of classes ``[n, pairs]``."""
        x = (np.asarray(values, float) - self._mean) / self._scale
        gaps = x[:, None, :] - self._vectors
        kernel = np.exp(-self._gamma * np.einsum("nvf,nvf->nv", gaps, gaps))
        return np.asarray(kernel @ self._weights.T + self._intercepts)

    def vote(self, values: Any, able: Any = None) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The number of the class that wins at each point, ``[n]``.

        Args:
            values: features, ``[n, features]``.
            able: which classes stand for election, ``[n, classes]``, at least one a point; those
                that do not have no pairs. None stands for all.
        """
        values = np.asarray(values, float)
        stands = np.ones((len(values), len(self.classes)), bool) if able is None else able
        votes = np.where(stands, 0.0, -1.0)
        if self._pairs:
            first = self.decisions(values) > 0
            both = stands[:, self._first] & stands[:, self._second]
            votes += (both & first) @ self._for_first + (both & ~first) @ self._for_second
        return np.asarray(np.argmax(votes, axis=1))


def _pair_weights(svm: Svm, pairs: list[tuple[int, int]]) -> Floats:
    """``[pairs, vectors]``: libsvm keeps, for a vector of class i, the coefficient of its pair
    with j in row ``j - 1`` where i < j, and in row ``j`` where i > j."""
    starts = np.concatenate([[0], np.cumsum(svm.counts)]).astype(int)
    weights = np.zeros((len(pairs), len(svm.vectors)))
    rows = np.array(svm.coefficients, float).reshape(len(svm.classes) - 1, len(svm.vectors))
    for number, (i, j) in enumerate(pairs):
        of_i, of_j = (slice(starts[c], starts[c + 1]) for c in (i, j))
        weights[number, of_i] = rows[j - 1, of_i]
        weights[number, of_j] = rows[i, of_j]
    return weights


@functools.lru_cache(maxsize=16)
def predictor(svm: Svm) -> Predictor:
    """The predictor of a machine, kept."""
    return Predictor(svm)


@functools.lru_cache(maxsize=4096)
def choose(svm: Svm, values: tuple[float, ...], among: frozenset[str]) -> str | None:
    """The class that wins at one point among those named, or None where none of them is known."""
    able = np.array([[name in among for name in svm.classes]])
    if not able.any():
        return None
    return svm.classes[int(predictor(svm).vote([values], able)[0])]
