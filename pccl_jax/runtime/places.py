"""Which device is in which process and on which node."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from pccl_jax._jax_compat import in_description, platform_of
from pccl_jax.runtime.native import missing_handlers
from pccl_jax.runtime.world import joined_world
from pccl_jax.topology import Topology, ranks_per_node_setting


@dataclass(frozen=True)
class Places:
    """Where the devices of a mesh are, by logical id, that is by position in the mesh.

    Attributes:
        node_of: number of the device's node.
        process_of: its process, as ``jax.process_index()`` counts.
        device_of: its id, as ``Device.id`` has it: unique in the program.
        obstacle: why our executor cannot connect them, or None.
        platform: ``"cpu"``, ``"cuda"``, ``"rocm"`` or ``"tpu"``.
    """

    node_of: tuple[int, ...]
    process_of: tuple[int, ...]
    device_of: tuple[int, ...]
    obstacle: str | None = None
    platform: str = "cpu"


def place_devices(mesh: Any) -> Places:
    """The places of a mesh's devices.

    A mesh without devices (an AbstractMesh) is taken to be the one of ``jax.set_mesh``, or to be
    laid out on ``jax.devices()``; where that is wrong, the call is refused when the program runs.
    """
    devices = _devices_of(mesh)
    if len(devices) < mesh.size:
        missing = f"an abstract mesh of {mesh.size} devices, of which {len(devices)} are here"
        nowhere = (0,) * mesh.size
        return Places(nowhere, nowhere, nowhere, missing)
    process_of = tuple(device.process_index for device in devices)
    platform = platform_of(devices[0])
    return Places(
        node_of=nodes_of([_host(device) for device in devices]),
        process_of=process_of,
        device_of=tuple(device.id for device in devices),
        obstacle=missing_handlers(platform) or _unconnected(platform, process_of),
        platform=platform,
    )


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
    return Topology(
        platform=devices[0].platform,
        node_of=nodes_of([_host(device) for device in devices]),
        processes=jax.process_count(),
        emulated=_emulated() is not None,
        transports=_transports(platform_of(devices[0])),
    )


def _transports(platform: str) -> tuple[str, ...]:
    if platform != "cpu":
        return ("xla",) if missing_handlers(platform) else ("nccl",)
    world = joined_world()
    return ("memory",) if world is None else ("memory", "shared memory", world.mpi)


def nodes_of(hosts: Sequence[int]) -> tuple[int, ...]:
    """The nodes of devices on these hosts, numbered in order of appearance.

    Nodes are hosts, or emulated parts of a host.
    """
    emulated = _emulated()
    keys = [
        (host, None if emulated is None else position // emulated)
        for position, host in enumerate(hosts)
    ]
    number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return tuple(number[key] for key in keys)


def _host(device: Any) -> int:
    """What tells the device's host from others.

    A GPU's slice is its host, whatever processes share it, or where NVLink connects hosts all of
    these: so the backends of GPUs agree at start-up. A description has hosts instead.
    """
    process = int(device.process_index)
    if in_description(device):
        return process
    world = joined_world()
    if world is not None:
        return world.host_of[process]
    return int(device.slice_index) if device.platform == "gpu" else process


def _unconnected(platform: str, process_of: Sequence[int]) -> str | None:
    """GPUs find each other when the program runs: their communicators need no start-up of ours."""
    if platform != "cpu" or set(process_of) <= {jax.process_index()}:
        return None
    if joined_world() is None:
        return "several processes, and pccl_jax.init() was not called at the start of each"
    return None


def _emulated() -> int | None:
    return ranks_per_node_setting(os.environ.get("PCCL_RANKS_PER_NODE"))
