"""The intermediate representation of a collective algorithm: a schedule is data.

A schedule is *rank-symbolic*: it is written once, in terms of the rank that runs it, and
serves every device of an SPMD program. A group has ``nodes * local`` ranks,
``rank = node * local + index``. Kinds of phase:

* :class:`Intra`: a collective among the ``local`` ranks of a node, done natively.
* :class:`Step`: one or more rounds of point-to-point messages inside each *rank-aligned*
  group, the ``nodes`` ranks that have the same ``index``. There a rank is its node number.
* :class:`Inter`: a collective among the ``nodes`` ranks of each rank-aligned group, done
  natively.
* :class:`Vendor`: the whole collective, done by somebody else.

When ``split``, the vector is cut into one chunk per rank, chunk ``c`` belonging to rank
``c``, and a step's chunk ``m`` stands for chunk ``m * local + index``. Otherwise the vector
travels whole, as chunk 0.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from pccl_jax.types import Collective


class Action(enum.IntEnum):
    """What the receiver of a message does with it.

    COPY: it replaces what the receiver held; a sender keeps its copy.
    REDUCE: it is reduced into what the receiver holds; the sender gives its partial result
    away and may not use it again (so nothing can be counted twice).
    COMBINE: as REDUCE, but the sender keeps its partial, as in recursive doubling. Needs
    ``split=False``.
    """

    COPY = 0
    REDUCE = 1
    COMBINE = 2


@dataclass(frozen=True)
class Index:
    """A number that depends on the rank: ``(((rank & keep) ^ flip) + add) mod modulus``."""

    keep: int = -1
    flip: int = 0
    add: int = 0

    @overload
    def at(self, rank: int, modulus: int) -> int: ...

    @overload
    def at(self, rank: npt.NDArray[np.int64], modulus: int) -> npt.NDArray[np.int64]: ...

    def at(self, rank: int | npt.NDArray[np.int64], modulus: int) -> int | npt.NDArray[np.int64]:
        """The value for ``rank``, or for each of an array of ranks."""
        return (((rank & self.keep) ^ self.flip) + self.add) % modulus


@dataclass(frozen=True)
class Step:
    """``times`` rounds in which ranks send runs of chunks to a peer.

    In round ``i`` every rank ``senders[0] <= rank < senders[1]`` sends chunks
    ``first.at(rank) + i * stride, ... (count of them, mod chunks)`` to ``to.at(rank)``. The
    receiving side follows from the sending side (``to`` is a bijection), so a send without
    its receive cannot be written down.
    """

    to: Index
    first: Index
    count: int
    action: Action
    senders: tuple[int, int]
    times: int = 1
    stride: int = 0


@dataclass(frozen=True)
class Intra:
    """A collective among the ranks of each node.

    ALL_GATHER: rank ``(node, index)`` holds the chunks ``m * local + index`` for every
    ``m``; afterwards it holds all chunks. REDUCE_SCATTER: the transpose: it ends with its
    node's reduction of those chunks and has given the others away. ALL_REDUCE: every rank
    ends with its node's reduction of everything.
    """

    collective: Collective


@dataclass(frozen=True)
class Inter:
    """A collective among the ranks of each rank-aligned group, of that group's own chunks.

    ALL_GATHER: rank ``(node, index)`` holds chunk ``node * local + index``; afterwards it holds
    ``m * local + index`` for every ``m``. REDUCE_SCATTER: the transpose. ALL_REDUCE: every rank
    ends with the group's reduction of all of these. Where the vector travels whole, of it.
    """

    collective: Collective


@dataclass(frozen=True)
class Vendor:
    """The whole collective by the MPI library; the only phase, and taken on trust."""

    collective: Collective


Phase = Intra | Inter | Step | Vendor


@dataclass(frozen=True)
class Schedule:
    """A checked recipe for one collective on ``nodes`` nodes of ``local`` ranks each."""

    collective: Collective
    algorithm: str
    nodes: int
    local: int
    split: bool
    phases: tuple[Phase, ...]

    @property
    def ranks(self) -> int:
        """Number of ranks in the group."""
        return self.nodes * self.local

    @property
    def chunks(self) -> int:
        """Number of chunks a step may name: one per node, or 1 when not split."""
        return self.nodes if self.split else 1
