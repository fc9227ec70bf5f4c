"""Settings of a program: the context manager ``using`` and the environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import jax

from pccl_jax.dispatch import check_algorithm

#: Part of jit's cache key: a function already traced is traced again under another value.
_ALGORITHM = jax.make_user_context(None)


@contextlib.contextmanager
def using(*, algorithm: str | None) -> Iterator[None]:
    """Prefers ``algorithm`` for every collective traced inside, where it applies.

    ``algorithm=`` on a call outranks it, it outranks ``PCCL_ALGORITHM``. jit's cache knows it:
    calling a jitted function under another ``using`` compiles it anew, and going back does not.

    Args:
        algorithm: a name as in ``pccl_jax.algorithms()``, or None for the dispatcher's choice.

    Raises:
        ConfigurationError: for an unknown algorithm.

    Example:
        >>> import pccl_jax
        >>> with pccl_jax.using(algorithm="ring"):
        ...     pass
    """
    check_algorithm(algorithm)
    with _ALGORITHM(algorithm):
        yield


def preferred_algorithm() -> str | None:
    """What ``using`` says here, else ``PCCL_ALGORITHM``, else None."""
    return _ALGORITHM.value or os.environ.get("PCCL_ALGORITHM") or None


def patience_s() -> tuple[float, float]:
    """Seconds to wait for other processes before a warning, and before an error.

    The warning comes at half time at the latest.
    """
    timeout_s = _seconds("PCCL_TIMEOUT_S", 300.0)
    return min(_seconds("PCCL_WARN_S", 30.0), timeout_s / 2), timeout_s


def _seconds(variable: str, otherwise: float) -> float:
    try:
        value = float(os.environ.get(variable, ""))
    except ValueError:
        return otherwise
    return value if value > 0 else otherwise
