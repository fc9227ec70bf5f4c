"""Which device is in which process and on which node."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from pccl_jax.runtime.world import joined_world
from pccl_jax.topology import Topology, ranks_per_node_setting


@dataclass(frozen=True)
class Places:
    """Where the devices of a mesh are, by logical id, that is by position in the mesh.

    Attributes:
        node_of: number of the device's node.
        process_of: its process, as ``jax.process_index()`` counts.
        obstacle: why our executor cannot connect them, or None.
    """

    node_of: tuple[int, ...]
    process_of: tuple[int, ...]
    obstacle: str | None = None


def place_devices(mesh: Any) -> Places:
    """The places of a mesh's devices.

    A mesh without devices (an AbstractMesh) is taken to be the one of ``jax.set_mesh``, or to be
    laid out on ``jax.devices()``; where that is wrong, the call is refused when the program runs.
    """
    devices = _devices_of(mesh)
    if len(devices) < mesh.size:
        missing = f"an abstract mesh of {mesh.size} devices, of which {len(devices)} are here"
        return Places((0,) * mesh.size, (0,) * mesh.size, missing)
    process_of = tuple(device.process_index for device in devices)
    return Places(_nodes(process_of), process_of, _obstacle(process_of, devices[0].platform))


def _devices_of(mesh: Any) -> list[Any]:
    if isinstance(mesh, jax.sharding.Mesh):
        return list(mesh.devices.flat)
    try:
        current = jax.sharding.get_mesh()
    except ValueError:  # not while something is being traced
        return jax.devices()[: mesh.size]
    if (current.axis_names, current.axis_sizes) == (mesh.axis_names, mesh.axis_sizes):
        return list(current.devices.flat)
    return jax.devices()[: mesh.size]


def topology() -> Topology:
    """The nodes of the program's devices.

    Returns:
        A :class:`~pccl_jax.topology.Topology`.

    Raises:
        ConfigurationError: where ``PCCL_RANKS_PER_NODE`` is not a positive whole number.

    Example:
        >>> import pccl_jax
        >>> print(pccl_jax.topology())  # doctest: +SKIP
        cpu: 1 node(s) x 8 device(s) in 1 process(es)
    """
    devices = jax.devices()
    world = joined_world()
    return Topology(
        platform=devices[0].platform,
        node_of=_nodes([device.process_index for device in devices]),
        processes=jax.process_count(),
        emulated=_emulated() is not None,
        transports=("memory",) if world is None else ("memory", "shared memory", world.mpi),
    )


def _nodes(process_of: Sequence[int]) -> tuple[int, ...]:
    """Numbers nodes in order of appearance: hosts, or emulated parts of a host."""
    emulated = _emulated()
    world = joined_world()
    keys = []
    for position, process in enumerate(process_of):
        host = process if world is None else world.host_of[process]
        keys.append((host, None if emulated is None else position // emulated))
    number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return tuple(number[key] for key in keys)


def _obstacle(process_of: Sequence[int], platform: str) -> str | None:
    if platform != "cpu":
        return f"devices of platform {platform} are left to XLA"
    if set(process_of) <= {jax.process_index()}:
        return None
    if joined_world() is None:
        return "several processes, and pccl_jax.init() was not called at the start of each"
    return None


def _emulated() -> int | None:
    return ranks_per_node_setting(os.environ.get("PCCL_RANKS_PER_NODE"))
