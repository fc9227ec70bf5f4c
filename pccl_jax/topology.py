"""Which devices share a node, and what that makes of a group. No JAX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pccl_jax.errors import ConfigurationError


@dataclass(frozen=True)
class Topology:
    """The machine as pccl_jax sees it.

    Attributes:
        platform: ``"cpu"``, ``"gpu"`` or ``"tpu"``.
        node_of: for each device, in the order of ``jax.devices()``, the number of its node.
        processes: number of processes of the program.
        emulated: whether ``PCCL_RANKS_PER_NODE`` says so rather than the machine.
        transports: names of the ways data can take between ranks.
    """

    platform: str
    node_of: tuple[int, ...]
    processes: int = 1
    emulated: bool = False
    transports: tuple[str, ...] = ("memory",)

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.node_of)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(set(self.node_of))

    @property
    def ranks_per_node(self) -> int | None:
        """Devices per node, or None where nodes differ."""
        counts = {self.node_of.count(node) for node in set(self.node_of)}
        return counts.pop() if len(counts) == 1 else None

    def __str__(self) -> str:
        per_node = self.ranks_per_node
        shape = f"{self.nodes} node(s) x {'uneven' if per_node is None else per_node} device(s)"
        note = ", emulated by PCCL_RANKS_PER_NODE" if self.emulated else ""
        return f"{self.platform}: {shape} in {self.processes} process(es){note}"


@dataclass(frozen=True)
class GroupLayout:
    """The groups of one collective, arranged for a schedule.

    Attributes:
        nodes: nodes a group spans, or the number of its ranks where ``even`` is False.
        local: ranks of a group on each node, or 1 where ``even`` is False.
        even: whether every group has the same number of ranks on each of its nodes.
        members: for each group the logical device ids in schedule order, node by node.
        places: for each group and schedule rank the position on the axis.
    """

    nodes: int
    local: int
    even: bool
    members: tuple[tuple[int, ...], ...]
    places: tuple[tuple[int, ...], ...]

    @property
    def ranks(self) -> int:
        """Number of ranks in each group."""
        return self.nodes * self.local


def ranks_per_node_setting(text: str | None) -> int | None:
    """Parses ``PCCL_RANKS_PER_NODE``; None where it is not set.

    Raises:
        ConfigurationError: where it is not a positive whole number.
    """
    if text is None or text == "":
        return None
    if not text.isdigit() or int(text) < 1:
        raise ConfigurationError(
            f"PCCL_RANKS_PER_NODE={text!r} is not a positive whole number; set it to the number "
            "of devices that one emulated node has, or unset it."
        )
    return int(text)


def arrange(groups: Sequence[Sequence[int]], node_of: Sequence[int]) -> GroupLayout | None:
    """Arranges ``groups`` of logical device ids by node; None where their sizes differ.

    Within a group nodes come in order of their first member, and the members of a node in
    their order on the axis.

    >>> arrange([[0, 2, 1, 3]], node_of=[0, 0, 1, 1])
    GroupLayout(nodes=2, local=2, even=True, members=((0, 1, 2, 3),), places=((0, 2, 1, 3),))
    """
    if len({len(group) for group in groups}) != 1:
        return None
    members, places, shapes = [], [], set()
    for group in groups:
        by_node: dict[int, list[int]] = {}
        for place, device in enumerate(group):
            by_node.setdefault(node_of[device], []).append(place)
        order = [place for node in by_node.values() for place in node]
        members.append(tuple(group[place] for place in order))
        places.append(tuple(order))
        counts = {len(node) for node in by_node.values()}
        shapes.add((len(by_node), counts.pop()) if len(counts) == 1 else None)
    shape = shapes.pop() if len(shapes) == 1 else None
    nodes, local = shape if shape is not None else (len(groups[0]), 1)
    return GroupLayout(nodes, local, shape is not None, tuple(members), tuple(places))
