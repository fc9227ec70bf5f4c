"""Who holds how much of what: the books that the checker keeps while it plays a schedule.

All rank-aligned groups act alike, so the books are those of index 0, per node. Of the
vector's chunks they keep apart the group's *own* (chunk ``m * local + index``) and the
*foreign* ones, which only the phases within a node touch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from pccl_jax.errors import ScheduleError
from pccl_jax.schedule.ir import Action, Schedule
from pccl_jax.types import Collective

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_GIVEN_AWAY = "expected a partial result of its own (not given away before) to reduce into"
_TWICE = "expected every contribution to be counted once"


@dataclass
class Place:
    """Where in the schedule the checker is; every refusal names it."""

    schedule: Schedule
    phase: int | None = None
    round: int = 0

    def refuse(self, text: str) -> NoReturn:
        """Raises a ScheduleError that says ``text`` about this place."""
        s = self.schedule
        where = "at the end" if self.phase is None else f"phase {self.phase}, round {self.round}"
        raise ScheduleError(
            f"{s.collective.label} by {s.algorithm!r} on {s.nodes} nodes x {s.local} ranks, "
            f"{where}: {text}"
        )


class Ledger(ABC):
    """The books of one schedule; every entry is refused unless it keeps them right."""

    def __init__(self, place: Place) -> None:
        """Opens the books as the collective finds the ranks."""
        self.place = place
        self.schedule = place.schedule
        self.nodes = np.arange(self.schedule.nodes)

    @abstractmethod
    def move(self, action: Action, senders: Ints, peers: Ints, chunks: Ints) -> None:
        """Enters one round: ``senders[i]`` sends ``chunks[i, :]`` to ``peers[i]``."""

    @abstractmethod
    def intra(self, collective: Collective) -> None:
        """Enters a collective within every node."""

    @abstractmethod
    def inter(self, collective: Collective) -> None:
        """Enters a collective within every rank-aligned group."""

    @abstractmethod
    def close(self) -> None:
        """Refuses unless every rank holds what the collective promises."""

    def require(
        self,
        ok: Bools,
        text: str,
        nodes: Ints,
        chunks: Ints,
        held: npt.NDArray[Any] | None = None,
    ) -> None:
        """Refuses unless all ``ok``, with ``text`` about the first that is not.

        ``ok`` is indexed by sender or by sender and chunk; ``nodes``, ``chunks`` and
        ``held``, what was found, accordingly.
        """
        if ok.all():
            return
        at = tuple(np.argwhere(~ok)[0])
        chunk = int(chunks[at] if ok.ndim == 2 else 0) * (
            self.schedule.local if self.schedule.split else 1
        )
        rank = int(nodes[at[0]]) * self.schedule.local
        found = "" if held is None else f", of which it holds {held[at]} contributions"
        self.place.refuse(f"rank {rank} {text.format(chunk=f'chunk {chunk}{found}')}")


class WeightLedger(Ledger):
    """For split schedules: the number of contributions in what each rank holds of a chunk."""

    def __init__(self, place: Place) -> None:
        """See :class:`Ledger`. ``foreign`` is the same number for all foreign chunks."""
        super().__init__(place)
        s = self.schedule
        gathers = s.collective is Collective.ALL_GATHER
        self.whole = 1 if gathers else s.ranks
        make = np.eye(s.nodes) if gathers else np.ones((s.nodes, s.nodes))
        self.own = make.astype(np.int32)
        self.foreign = 0 if gathers else 1

    def move(self, action: Action, senders: Ints, peers: Ints, chunks: Ints) -> None:
        """See :meth:`Ledger.move`. Everything is read before anything is written."""
        own, whole = self.own.reshape(-1), self.whole
        cells = chunks + (senders * self.schedule.nodes)[:, None]
        sent = own.take(cells)
        if action is Action.COPY:
            text = "sends {chunk}; to copy it, expected the finished result"
            self.require(sent == whole, text, senders, chunks, sent)
            cells += ((peers - senders) * self.schedule.nodes)[:, None]
            mine = own.take(cells)
            text = "receives {chunk}; expected it not to hold the finished result already"
            self.require(mine != whole, text, peers, chunks, mine)
            own[cells] = whole
            return
        text = "sends {chunk}; expected a partial result to give away"
        self.require(sent > 0, text, senders, chunks, sent)
        own[cells] = 0
        cells += ((peers - senders) * self.schedule.nodes)[:, None]
        mine = own.take(cells)
        self.require(mine > 0, "receives {chunk}; " + _GIVEN_AWAY, peers, chunks, mine)
        sent += mine
        self.require(sent <= whole, "reduces {chunk}; " + _TWICE, peers, chunks, sent)
        own[cells] = sent

    def intra(self, collective: Collective) -> None:
        """See :meth:`Ledger.intra`."""
        if collective is Collective.ALL_GATHER:
            text = "enters the node's all-gather with {chunk}; expected the finished result"
            self._require_own(self.own == self.whole, text, self.own)
            if self.foreign:
                self.place.refuse("rank 0 gathers chunk 1, expected it not to hold it already")
            self.foreign = self.whole
            return
        if not self.foreign:
            self.place.refuse(f"rank 0 reduces chunk 1, of which it holds nothing; {_GIVEN_AWAY}")
        self._require_own(self.own > 0, "reduces {chunk}; " + _GIVEN_AWAY, self.own)
        total = self.own + (self.schedule.local - 1) * self.foreign
        self._require_own(total <= self.whole, "reduces {chunk}; " + _TWICE, total)
        if collective is Collective.ALL_REDUCE:
            # Partial results on several ranks at once would break the sum that proves.
            text = "all-reduces {chunk} in its node; in a split schedule expected it finished then"
            self._require_own(total == self.whole, text, total)
        self.own = total
        self.foreign = self.whole if collective is Collective.ALL_REDUCE else 0

    def inter(self, collective: Collective) -> None:
        """See :meth:`Ledger.inter`."""
        if collective is Collective.ALL_GATHER:
            text = "enters the gather between nodes with {chunk}; expected the finished result"
            mine = self.own.diagonal()[:, None]
            self.require(mine == self.whole, text, self.nodes, self.nodes[:, None], mine)
            others = self.own * (1 - np.eye(self.schedule.nodes, dtype=np.int32))
            text = "gathers {chunk}, expected it not to hold the finished result already"
            self._require_own(others != self.whole, text, others)
            self.own[:] = self.whole
            return
        self._require_own(self.own > 0, "reduces {chunk}; " + _GIVEN_AWAY, self.own)
        total = np.broadcast_to(self.own.sum(axis=0, dtype=np.int64), self.own.shape)
        self._require_own(total <= self.whole, "reduces {chunk}; " + _TWICE, total)
        if collective is Collective.REDUCE_SCATTER:
            self.own = (np.diag(total[0])).astype(np.int32)
            return
        text = "all-reduces {chunk} between nodes; in a split schedule expected it finished then"
        self._require_own(total == self.whole, text, total)
        self.own[:] = self.whole

    def close(self) -> None:
        """See :meth:`Ledger.close`."""
        text = f"ends with {{chunk}}; expected {self.whole}"
        if self.schedule.collective is Collective.REDUCE_SCATTER:
            mine = self.own.diagonal()[:, None]
            self.require(mine == self.whole, text, self.nodes, self.nodes[:, None], mine)
            return
        self._require_own(self.own == self.whole, text, self.own)
        if self.schedule.local > 1 and self.foreign != self.whole:
            self.place.refuse(
                f"rank 0 ends with chunk 1, of which it holds {self.foreign} contributions; "
                f"expected {self.whole}"
            )

    def _require_own(self, ok: Bools, text: str, held: npt.NDArray[Any]) -> None:
        chunks = np.broadcast_to(self.nodes, ok.shape)
        self.require(ok, text, self.nodes, chunks, held)


class SetLedger(Ledger):
    """For whole vectors: the very set of contributions in each rank's partial result.

    ``sets[0][node]`` has a bit for each node's rank of the same index, ``sets[1][node]``
    one for each node's ranks of the other indices.
    """

    def __init__(self, place: Place) -> None:
        """See :class:`Ledger`."""
        super().__init__(place)
        own = np.packbits(np.eye(self.schedule.nodes, dtype=np.bool_), axis=1)
        layers = [own, np.zeros_like(own)] if self.schedule.local > 1 else [own]
        self.sets = np.stack(layers)
        self.full = np.packbits(np.ones(self.schedule.nodes, dtype=np.bool_))

    def move(self, action: Action, senders: Ints, peers: Ints, chunks: Ints) -> None:
        """See :meth:`Ledger.move`. Everything is read before anything is written."""
        sent = self.sets[:, senders]
        if action is Action.COPY:
            text = "sends {chunk}; to copy it, expected the finished result"
            self.require(self._finished(sent), text, senders, chunks)
            text = "receives {chunk}; expected it not to hold the finished result already"
            self.require(~self._finished(self.sets[:, peers]), text, peers, chunks)
            self.sets[:, peers] = sent
            return
        text = "sends {chunk}; expected a partial result (not given away before)"
        self.require(np.any(sent, axis=(0, 2)), text, senders, chunks)
        if action is Action.REDUCE:
            self.sets[:, senders] = 0
        mine = self.sets[:, peers]
        self.require(np.any(mine, axis=(0, 2)), "receives {chunk}; " + _GIVEN_AWAY, peers, chunks)
        disjoint = ~np.any(mine & sent, axis=(0, 2))
        self.require(disjoint, "reduces {chunk}; " + _TWICE, peers, chunks)
        self.sets[:, peers] = mine | sent

    def intra(self, collective: Collective) -> None:
        """See :meth:`Ledger.intra`; ``collective`` is ALL_REDUCE."""
        own, foreign = self.sets
        zero = np.zeros((len(self.nodes), 1), dtype=np.int64)
        held = np.any(self.sets, axis=(0, 2))
        self.require(held, "reduces {chunk}; " + _GIVEN_AWAY, self.nodes, zero)
        # Three or more ranks of a node have a foreign contribution in common.
        shared = foreign & own if self.schedule.local == 2 else foreign
        self.require(~np.any(shared, axis=1), "reduces {chunk}; " + _TWICE, self.nodes, zero)
        self.sets[:] = own | foreign

    def inter(self, collective: Collective) -> None:
        """See :meth:`Ledger.inter`; ``collective`` is ALL_REDUCE."""
        zero = np.zeros((len(self.nodes), 1), dtype=np.int64)
        held = np.any(self.sets, axis=(0, 2))
        self.require(held, "reduces {chunk}; " + _GIVEN_AWAY, self.nodes, zero)
        bits = np.unpackbits(self.sets, axis=2).sum(axis=1)
        once = np.broadcast_to(np.all(bits <= 1), self.nodes.shape)
        self.require(once, "reduces {chunk}; " + _TWICE, self.nodes, zero)
        self.sets[:] = np.bitwise_or.reduce(self.sets, axis=1)[:, None]

    def close(self) -> None:
        """See :meth:`Ledger.close`."""
        zero = np.zeros((len(self.nodes), 1), dtype=np.int64)
        text = "ends with {chunk} unfinished; expected the contributions of all ranks"
        self.require(self._finished(self.sets), text, self.nodes, zero)

    def _finished(self, sets: npt.NDArray[np.uint8]) -> Bools:
        finished: Bools = np.all(sets == self.full, axis=(0, 2))
        return finished
