"""What one worker measures, as plain data that goes from process to process as JSON."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

from pccl_jax.cli._bench.cases import Case

_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


@dataclasses.dataclass(frozen=True)
class Settings:
    """One worker's task.

    Attributes:
        devices: number of CPU devices of each process.
        collectives: labels, e.g. ``all_gather``.
        sizes: bytes of the larger array on each device.
        dtypes: element types by name.
        contenders: names of contender modules.
        algorithms: what the contender ``pccl`` is measured with; ``auto`` is its own choice.
        against: the contender that all are compared with.
        repeats: least number of rounds per case.
        min_time_s: least time spent on the rounds of a case.
        max_time_s: time after which a case has no more than a few rounds.
        check: whether results are compared.
        lowering: measure tracing and lowering instead of running.
        own_time: measure what a call takes without XLA's dispatch of the program around it.
        processes: number of processes that measure in step.
        groups: ranks of the groups; the devices are divided among as many as there are, which
            work at the same time. Empty stands for one of all devices.
        ranks_per_node: devices of an emulated node; None leaves the nodes as they are.
    """

    devices: int
    collectives: tuple[str, ...]
    sizes: tuple[int, ...]
    dtypes: tuple[str, ...]
    contenders: tuple[str, ...] = ("pccl",)
    algorithms: tuple[str, ...] = ("auto",)
    against: str = "lax"
    repeats: int = 10
    min_time_s: float = 1.0
    max_time_s: float = 10.0
    check: bool = True
    lowering: bool = False
    own_time: bool = False
    processes: int = 1
    groups: tuple[int, ...] = ()
    ranks_per_node: int | None = None

    @property
    def total(self) -> int:
        """Devices of all processes."""
        return self.devices * self.processes

    def cases(self) -> list[Case]:
        """Every case in the order in which it is measured.

        Lowering depends on no size. For the own time all-gathers alternate with reduce-scatters.
        """
        sizes = self.sizes[:1] if self.lowering else self.sizes
        left_out = "reduce_scatter" if self.own_time else None
        return [
            Case(collective, dtype, size, ranks)
            for dtype in self.dtypes
            for ranks in self.groups or (self.total,)
            for collective in self.collectives
            if collective != left_out
            for size in sizes
        ]

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """The inverse of :meth:`to_json`."""
        fields: dict[str, Any] = json.loads(text)
        for name, value in fields.items():
            if isinstance(value, list):
                fields[name] = tuple(value)
        return cls(**fields)


def parse_size(text: str) -> int:
    """Bytes of ``4096``, ``4KiB``, ``1.5 MiB`` or ``1GiB``, in any case.

    Raises:
        ValueError: for anything else, and for less than one byte or a broken byte.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    factor = _UNITS.get(match[2]) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is no size; write it like 4096, 4KiB, 1MiB or 1GiB")
    nbytes = float(match[1]) * factor
    if nbytes < 1 or nbytes != int(nbytes):
        raise ValueError(f"{text!r} is {nbytes:g} bytes; a size is a whole number from 1 up")
    return int(nbytes)


def format_size(nbytes: int) -> str:
    """The shortest exact form: ``4 KiB``, ``1 MiB``, ``100 B``."""
    for unit in ("GiB", "MiB", "KiB"):
        count, rest = divmod(nbytes, _UNITS[unit.lower()])
        if count and not rest:
            return f"{count} {unit}"
    return f"{nbytes} B"
