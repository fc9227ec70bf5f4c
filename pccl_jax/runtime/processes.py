"""Start-up, and which device is on which node."""

from __future__ import annotations

import os
from typing import Any

import jax

from pccl_jax.runtime.native import register_handlers
from pccl_jax.topology import Topology, ranks_per_node_setting


def init() -> Topology:
    """Prepares pccl_jax; optional, idempotent, and needed only in two cases.

    Alone in one process it registers the handlers with XLA, which otherwise happens when the
    first collective is lowered. Call it before you load an executable that another process has
    serialised.

    Returns:
        The topology, as :func:`topology`.
    """
    if jax.default_backend() == "cpu":
        register_handlers()
    return topology()


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
    node_of = _nodes([device.process_index for device in devices])
    return Topology(
        platform=devices[0].platform,
        node_of=tuple(node_of),
        processes=jax.process_count(),
        emulated=_emulated() is not None,
    )


def node_of_mesh(mesh: Any) -> list[int]:
    """Node numbers by logical id, that is by position in ``mesh``.

    A mesh without devices (an AbstractMesh) is taken to be laid out on ``jax.devices()``.
    """
    devices = getattr(mesh, "devices", None)
    if devices is None:
        devices = jax.devices()[: mesh.size]
        return _nodes([device.process_index for device in devices] or [0] * mesh.size)
    return _nodes([device.process_index for device in devices.flat])


def _nodes(process_of: list[int]) -> list[int]:
    emulated = _emulated()
    if emulated is not None:
        return [position // emulated for position in range(len(process_of))]
    return process_of


def _emulated() -> int | None:
    return ranks_per_node_setting(os.environ.get("PCCL_RANKS_PER_NODE"))
