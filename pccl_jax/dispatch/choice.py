"""What is asked of the dispatcher, what it answers, and a record of the answers."""

from __future__ import annotations

import logging
import math
from collections import deque
from dataclasses import dataclass

from pccl_jax.types import Collective, Op

_LOG = logging.getLogger("pccl_jax")


@dataclass(frozen=True)
class Request:
    """The static facts of one collective.

    Attributes:
        collective: what is to be done.
        op: with which operator; SUM for an all-gather.
        axis: the axis names, for people.
        shape: of the operand.
        dtype: of the operand, by name.
        nbytes: bytes of the larger of operand and result.
        nodes: nodes a group spans.
        local: ranks of a group on each node.
        even: whether ``nodes * local`` is what every group looks like; otherwise ``nodes`` is
            the number of ranks and only flat algorithms apply.
        mpi: name of the MPI library that connects the processes; None where none does.
        ranks_per_process: the most ranks of a group that share a process.
        platform: of the devices: ``cpu``, ``cuda``, ``rocm`` or ``tpu``.
    """

    collective: Collective
    op: Op
    axis: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    nodes: int
    local: int
    even: bool = True
    mpi: str | None = None
    ranks_per_process: int = 1
    platform: str = "cpu"

    @property
    def ranks(self) -> int:
        """Number of ranks in each group."""
        return self.nodes * self.local

    @property
    def elements(self) -> int:
        """Number of elements of the operand."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Choice:
    """The algorithm that serves a request, and why."""

    request: Request
    algorithm: str
    reason: str

    @property
    def collective(self) -> str:
        """Name of the collective, e.g. ``all_gather``."""
        return self.request.collective.label

    @property
    def axis(self) -> str:
        """The axis names."""
        return self.request.axis

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the operand on each device."""
        return self.request.shape

    @property
    def dtype(self) -> str:
        """Element type of the operand."""
        return self.request.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the larger of operand and result on each device."""
        return self.request.nbytes

    @property
    def ranks(self) -> int:
        """Number of ranks in the group."""
        return self.request.ranks

    @property
    def nodes(self) -> int:
        """Number of nodes that the group spans; 0 where some hold more of its ranks than others."""
        return self.request.nodes if self.request.even else 0

    def __str__(self) -> str:
        r = self.request
        where = f"{r.nodes} x {r.local} ranks" if r.even else f"{r.ranks} ranks on uneven nodes"
        return (
            f"{self.collective} over {r.axis} of {r.dtype}{list(r.shape)} "
            f"({r.nbytes} bytes, {where}): {self.algorithm}, {self.reason}"
        )


#: The latest choices; bounded, as a long-lived process may lower any number of programs.
_RECORDED: deque[Choice] = deque(maxlen=10_000)


def record(choice: Choice) -> None:
    """Notes a choice for :func:`choices` and in the debug log of the logger ``pccl_jax``."""
    _RECORDED.append(choice)
    _LOG.debug("%s", choice)


def choices(*, clear: bool = False) -> list[Choice]:
    """The choices made so far, one for each collective that was lowered, oldest first.

    Args:
        clear: forget them afterwards.

    Example:
        >>> import pccl_jax
        >>> for choice in pccl_jax.choices():  # doctest: +SKIP
        ...     print(choice)
        all_gather over 'data' of float32[1024] (32768 bytes, 1 x 8 ranks): hier_rec, ...
    """
    made = list(_RECORDED)
    if clear:
        _RECORDED.clear()
    return made
