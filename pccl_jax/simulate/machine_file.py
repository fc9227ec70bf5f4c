"""Reads machines from JSON files: figures in the units of data sheets, each checked.

A file is data: nothing in it is ever executed, imported or expanded. Version 1 has these members;
``<level>`` stands for an object:

====================  ==========================================================================
member                meaning
====================  ==========================================================================
schema, version       ``"pccl_jax.machine"``, 1
name, description     text; the description may be missing
nodes, ranks_per_node, nics_per_node   whole numbers
node                  latency_us, bandwidth_GBps (a rank, each direction), shared_bandwidth_GBps
                      (all ranks of the node together; null for no limit), direct (true or false)
network               latency_us, bandwidth_GBps (a NIC, each direction), group_nodes and
                      group_bandwidth_GBps (what leaves a group of nodes; null for no groups)
overhead_us           a rank is busy with each message that it sends
launch_us             to start a collective
reduce_GBps           each operand of a reduction of two
copy_GBps             a copy within a rank's memory
segment_KiB           a message is reduced in pieces of this size
shuffles              true or false
nccl                  may be missing; a list of protocols, see ``Protocol``
sources               may be missing: texts, by member (``node.latency_us``)
====================  ==========================================================================
"""

from __future__ import annotations

import functools
import importlib.resources
import json
import math
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from pccl_jax.errors import ConfigurationError
from pccl_jax.simulate.machine import Machine, Network, Node, Protocol

SCHEMA = "pccl_jax.machine"
VERSION = 1

#: No machine takes more; what does is not parsed.
MOST_BYTES = 1 << 20
#: Bounds of any latency in us, any rate in GB/s; beyond them a unit has been mistaken.
_LATENCY_US = (0.0, 1e7)
_RATE_GBPS = (1e-6, 1e6)
_COUNT = (1, 10_000_000)

_SHIPPED = importlib.resources.files("pccl_jax.simulate") / "machines"

#: From the unit that ends a member's name to SI.
_FACTORS = {"us": 1e-6, "GBps": 1e9, "KiB": 1024.0}


def machine_names() -> tuple[str, ...]:
    """The machines that come with pccl_jax, in alphabetical order.

    >>> machine_names()
    ('cluster', 'frontier', 'h200', 'host', 'perlmutter')
    """
    files = (file.name for file in _SHIPPED.iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in files if name.endswith(".json")))


def load_machine(name_or_path: str | Path) -> Machine:
    """The machine of that name, or of that file.

    Args:
        name_or_path: one of :func:`machine_names`, or a path that ends in ``.json`` or has a
            separator.

    Raises:
        ConfigurationError: where there is none, or where the file is not what this version
            expects; the message names the member, what it is and what was expected.

    Example:
        >>> load_machine("frontier").nics_per_node
        4
    """
    text = str(name_or_path)
    if isinstance(name_or_path, str) and re.fullmatch(r"[\w-]+", text):
        return _shipped(text)
    path = Path(name_or_path)
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"machine file {text!r} cannot be read: {error}") from error
    return parse_machine(content, f"machine file {text!r}")


@functools.cache
def _shipped(name: str) -> Machine:
    if name not in machine_names():
        raise ConfigurationError(
            f"unknown machine {name!r}; known are {', '.join(machine_names())}, or give the path "
            "of a file, like ./mine.json"
        )
    return parse_machine((_SHIPPED / f"{name}.json").read_bytes(), f"machine {name!r}")


def parse_machine(content: bytes, where: str = "machine") -> Machine:
    """The machine that ``content``, a JSON document in UTF-8, describes.

    Raises:
        ConfigurationError: as :func:`load_machine`; messages begin with ``where``.
    """
    if len(content) > MOST_BYTES:
        raise ConfigurationError(f"{where}: got more than {MOST_BYTES} bytes, expected fewer")
    try:
        document = json.loads(content.decode("utf-8"), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{where}: it is not valid JSON: {error}") from error
    root = _Object(document, where, "")
    if (schema := root.take("schema")) != SCHEMA:
        root.refuse("schema", schema, repr(SCHEMA))
    if (version := root.take("version")) != VERSION or isinstance(version, bool):
        root.refuse("version", version, f"{VERSION}, which this version of pccl_jax reads")
    return _machine(root)


def dump_machine(machine: Machine) -> str:
    """The file's text; :func:`parse_machine` is its inverse, up to rounding.

    Example:
        >>> parse_machine(dump_machine(load_machine("host")).encode()).name
        'host'
    """
    node, network = machine.node, machine.network
    document = {
        "schema": SCHEMA,
        "version": VERSION,
        "name": machine.name,
        "description": machine.description,
        "nodes": machine.nodes,
        "ranks_per_node": machine.ranks_per_node,
        "nics_per_node": machine.nics_per_node,
        "node": {
            "latency_us": node.latency_s * 1e6,
            "bandwidth_GBps": node.bandwidth_Bps / 1e9,
            "shared_bandwidth_GBps": _finite(node.shared_Bps / 1e9),
            "direct": node.direct,
        },
        "network": {
            "latency_us": network.latency_s * 1e6,
            "bandwidth_GBps": network.bandwidth_Bps / 1e9,
            "group_nodes": network.group_nodes or None,
            "group_bandwidth_GBps": _finite(network.group_Bps / 1e9),
        },
        "overhead_us": machine.overhead_s * 1e6,
        "launch_us": machine.launch_s * 1e6,
        "reduce_GBps": machine.reduce_Bps / 1e9,
        "copy_GBps": machine.copy_Bps / 1e9,
        "segment_KiB": machine.segment_bytes / 1024,
        "shuffles": machine.shuffles,
        "nccl": [_protocol_members(protocol) for protocol in machine.nccl],
        "sources": machine.sources,
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _protocol_members(protocol: Protocol) -> dict[str, Any]:
    members = {}
    for name, value in vars(protocol).items():
        if name.endswith("_s"):
            members[f"{name.removesuffix('_s')}_us"] = value * 1e6
        else:
            members[name] = value
    return members


def _machine(root: _Object) -> Machine:
    node, network = root.object("node"), root.object("network")
    machine = Machine(
        name=root.text("name"),
        description=root.text("description", default=""),
        nodes=root.count("nodes"),
        ranks_per_node=root.count("ranks_per_node"),
        nics_per_node=root.count("nics_per_node"),
        node=Node(
            latency_s=node.number("latency_us"),
            bandwidth_Bps=node.number("bandwidth_GBps"),
            shared_Bps=node.number("shared_bandwidth_GBps", null=math.inf),
            direct=node.flag("direct"),
        ),
        network=Network(
            latency_s=network.number("latency_us"),
            bandwidth_Bps=network.number("bandwidth_GBps"),
            group_nodes=network.count("group_nodes", null=0),
            group_Bps=network.number("group_bandwidth_GBps", null=math.inf),
        ),
        overhead_s=root.number("overhead_us"),
        launch_s=root.number("launch_us"),
        reduce_Bps=root.number("reduce_GBps"),
        copy_Bps=root.number("copy_GBps"),
        segment_bytes=root.number("segment_KiB"),
        shuffles=root.flag("shuffles"),
        nccl=tuple(_protocol(entry) for entry in root.objects("nccl")),
        sources=root.texts("sources"),
    )
    for entry in (root, node, network):
        entry.close()
    return machine


def _protocol(entry: _Object) -> Protocol:
    values: dict[str, Any] = {"protocol": entry.text("protocol")}
    for field in fields(Protocol)[1:]:
        if field.name.endswith("factors"):
            values[field.name] = entry.shares(field.name)
        elif field.name.endswith("share"):
            values[field.name] = entry.number(field.name, bounds=(1e-6, 1.0))
        else:
            values[field.name] = entry.number(f"{field.name.removesuffix('_s')}_us")
    entry.close()
    return Protocol(**values)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("an object has the same member twice")
    return result


class _Object:
    """A JSON object of which every member has to be taken, each with its type."""

    def __init__(self, value: Any, where: str, path: str) -> None:
        self._where, self._path = where, path
        if not isinstance(value, dict):
            raise ConfigurationError(
                f"{where}: got {_shown(value)} for {path or 'the document'}, expected an object"
            )
        self._left = dict(value)

    def refuse(self, name: str, got: Any, expected: str) -> NoReturn:
        raise ConfigurationError(
            f"{self._where}: got {_shown(got)} for {self._path}{name}, expected {expected}"
        )

    def take(self, name: str) -> Any:
        if name not in self._left:
            raise ConfigurationError(f"{self._where}: {self._path}{name} is missing")
        return self._left.pop(name)

    def text(self, name: str, default: str | None = None) -> str:
        value = self._left.pop(name, default) if default is not None else self.take(name)
        if not isinstance(value, str) or len(value) > 10_000:
            self.refuse(name, value, "a text")
        return str(value)

    def flag(self, name: str) -> bool:
        value = self.take(name)
        if not isinstance(value, bool):
            self.refuse(name, value, "true or false")
        return bool(value)

    def count(self, name: str, null: int | None = None) -> int:
        value = self.take(name)
        if value is None and null is not None:
            return null
        low, high = _COUNT
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.refuse(name, value, f"a whole number from {low} to {high}")
        return int(value)

    def number(
        self, name: str, null: float | None = None, bounds: tuple[float, float] | None = None
    ) -> float:
        """A number in SI units; its name's ending tells the unit that it has in the file."""
        value = self.take(name)
        if value is None and null is not None:
            return null
        low, high = bounds or (_LATENCY_US if name.endswith("_us") else _RATE_GBPS)
        ordinary = isinstance(value, int | float) and not isinstance(value, bool)
        if not ordinary or not low <= value <= high:
            self.refuse(name, value, f"a number from {low:g} to {high:g}")
        return float(value) * _FACTORS.get(name.rpartition("_")[2], 1.0)

    def shares(self, name: str) -> tuple[float, ...]:
        """A list of numbers from 0 to 1, 0 excluded, that may be missing."""
        value = self._left.pop(name, [])
        if not isinstance(value, list) or len(value) > 64:
            self.refuse(name, value, "a list of at most 64 numbers")
        entry = _Object(
            {str(i): v for i, v in enumerate(value)}, self._where, f"{self._path}{name}."
        )
        return tuple(entry.number(str(i), bounds=(1e-6, 1.0)) for i in range(len(value)))

    def object(self, name: str) -> _Object:
        return _Object(self.take(name), self._where, f"{self._path}{name}.")

    def objects(self, name: str) -> list[_Object]:
        """The entries of a list that may be missing."""
        value = self._left.pop(name, [])
        if not isinstance(value, list) or len(value) > 16:
            self.refuse(name, value, "a list of at most 16 objects")
        return [_Object(v, self._where, f"{self._path}{name}[{i}].") for i, v in enumerate(value)]

    def texts(self, name: str) -> dict[str, str]:
        """An object of texts that may be missing."""
        entry = _Object(self._left.pop(name, {}), self._where, f"{self._path}{name}.")
        return {key: entry.text(key) for key in list(entry._left)}

    def close(self) -> None:
        """Refuses what nobody has taken: a misspelt member must not pass for a default."""
        if self._left:
            unknown = ", ".join(sorted(self._left))
            raise ConfigurationError(
                f"{self._where}: {self._path or 'the document'} has the unknown {unknown[:200]}; "
                "remove it or correct its name"
            )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
