"""The processes that measure together: the only place that knows whether there are several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import jax
import numpy as np

from pccl_jax.cli._bench.cases import AXIS
from pccl_jax.cli._bench.settings import Settings


class Job(Protocol):
    """All processes run the same cases in the same order; the root alone reports."""

    @property
    def is_root(self) -> bool:
        """Whether this process reports."""

    def barrier(self) -> None:
        """Returns once every process has called it."""

    def largest(self, values: Sequence[float]) -> list[float]:
        """The elementwise maximum over the processes: a case takes as long as its slowest."""


class Alone:
    """The job of one process."""

    is_root = True

    def barrier(self) -> None:
        """There is nobody to wait for."""

    def largest(self, values: Sequence[float]) -> list[float]:
        """Its own values."""
        return list(values)


def join(settings: Settings) -> tuple[Job, jax.sharding.Mesh]:
    """Starts JAX as ``settings`` say: the job this process is part of, and its mesh."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", settings.devices)
    if any(dtype.endswith("64") for dtype in settings.dtypes):
        jax.config.update("jax_enable_x64", True)
    return Alone(), jax.sharding.Mesh(np.array(jax.devices()), (AXIS,))
