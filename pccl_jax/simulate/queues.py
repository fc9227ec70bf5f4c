"""Servers that messages take turns at: NICs, and the ports of ranks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Queue:
    """The messages of one round at their servers, first come, first served.

    Args:
        servers: int64[n], n > 0, which server each message needs.
        free: float64[servers], when each server is free; changed by :meth:`serve`.
    """

    def __init__(self, servers: Ints, free: Floats) -> None:
        self._servers, self._free = servers, free
        counts = np.bincount(servers)
        most = int(counts.max())
        self._in_turn = most > 1
        if self._in_turn:
            self._used = np.flatnonzero(counts)
            self._rows = _rows(servers, self._used, most)

    def serve(self, come: Floats, service: Floats) -> Floats:
        """float64[n]: when each message, there at ``come``, has been served for ``service``."""
        if self._in_turn:
            return self._serve_in_turn(come, service)
        done: Floats = np.maximum(come, self._free[self._servers]) + service
        self._free[self._servers] = done
        return done

    def _serve_in_turn(self, come: Floats, service: Floats) -> Floats:
        # The number beyond the last stands for no message, which never comes and takes nothing.
        waiting = np.append(come, np.inf)[self._rows]
        order = np.argsort(waiting, axis=1, kind="stable")
        rows = np.take_along_axis(self._rows, order, axis=1)
        waiting = np.maximum(
            np.take_along_axis(waiting, order, axis=1), self._free[self._used, None]
        )
        # The k-th is done at the latest of: the j-th has come, and the j-th to k-th are served.
        takes = np.append(service, 0.0)[rows]
        after = np.cumsum(takes, axis=1)
        before = after - takes
        served = np.maximum.accumulate(waiting - before, axis=1) + after
        done = np.empty(come.size + 1)
        done[rows] = served
        self._free[self._used] = np.where(np.isfinite(served), served, -np.inf).max(axis=1)
        return done[:-1]


def _rows(servers: Ints, used: Ints, most: int) -> Ints:
    """int64[used, most]: the messages of each server; ``servers.size`` stands for none."""
    order = np.argsort(servers, kind="stable")
    row = np.searchsorted(used, servers[order])
    first = np.searchsorted(servers[order], used)
    rows = np.full((used.size, most), servers.size)
    rows[row, np.arange(servers.size) - first[row]] = order
    return rows
