"""The processes that measure together: the only place that knows whether there are several."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import jax
import numpy as np

import pccl_jax
from pccl_jax.cli._bench.cases import AXIS, GROUPS, Case
from pccl_jax.cli._bench.settings import Settings
from pccl_jax.runtime.launcher import find_launch
from pccl_jax.runtime.world import joined_world
from pccl_jax.topology import arrange


class Job(Protocol):
    """All processes run the same cases in the same order."""

    def barrier(self) -> None:
        """Returns once every process has called it."""

    def largest(self, values: Sequence[float]) -> list[float]:
        """The elementwise maximum over the processes: a case takes as long as its slowest."""

    def faults(self, wrong: str | None) -> list[str]:
        """What is wrong in any of the processes, in all of them."""


class Alone:
    """The job of one process."""

    def barrier(self) -> None:
        """There is nobody to wait for."""

    def largest(self, values: Sequence[float]) -> list[float]:
        """Its own values."""
        return list(values)

    def faults(self, wrong: str | None) -> list[str]:
        """Its own."""
        return [] if wrong is None else [wrong]


class InStep:
    """The job of the processes that a launcher has started; ``comm`` is an mpi4py communicator."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm

    def barrier(self) -> None:
        """MPI's."""
        self._comm.Barrier()

    def largest(self, values: Sequence[float]) -> list[float]:
        """The maximum over the processes, in all of them."""
        every = np.empty((self._comm.Get_size(), len(values)))
        self._comm.Allgather(np.array(values, np.float64), every)
        return [float(value) for value in every.max(axis=0)]

    def faults(self, wrong: str | None) -> list[str]:
        """What is wrong, with the process that says so."""
        texts = enumerate(self._comm.allgather(wrong))
        return [f"process {process}: {text}" for process, text in texts if text is not None]


def is_root() -> bool:
    """Whether this process reports for all."""
    world = joined_world()
    return world is None or world.process == 0


def processes() -> int:
    """How many a launcher has started to measure together, known before they have joined."""
    launch = find_launch(os.environ)
    return launch.processes if launch else 1


def join(settings: Settings) -> Job:
    """Starts JAX as ``settings`` say: the job this process is part of."""
    if settings.ranks_per_node is not None:
        os.environ["PCCL_RANKS_PER_NODE"] = str(settings.ranks_per_node)
    jax.config.update("jax_platforms", "cpu")
    if jax.config.jax_num_cpu_devices != settings.devices:  # type: ignore[attr-defined]
        jax.config.update("jax_num_cpu_devices", settings.devices)
    if any(dtype.endswith("64") for dtype in settings.dtypes):
        jax.config.update("jax_enable_x64", True)
    if settings.processes > 1:
        pccl_jax.init()
    world = joined_world()
    return Alone() if world is None else InStep(world.comm.Dup())


def mesh_of(case: Case) -> jax.sharding.Mesh:
    """All devices, in groups of the case's ranks."""
    return jax.sharding.Mesh(np.array(jax.devices()).reshape(-1, case.ranks), (GROUPS, AXIS))


def place_of(case: Case) -> dict[str, int]:
    """What the dispatcher knows of a group: its nodes, and the ranks that share a process."""
    node_of = pccl_jax.topology().node_of
    groups = np.arange(len(node_of)).reshape(-1, case.ranks).tolist()
    layout = arrange(groups, node_of)
    assert layout is not None
    process_of = [device.process_index for device in jax.devices()]
    most = max(max(Counter(process_of[d] for d in group).values()) for group in groups)
    return {"nodes": layout.nodes, "ranks_per_process": most}
