"""Machines for tests, and strategies that draw them."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import strategies as st

from pccl_jax.simulate import Machine, Network, Node

#: Every rank has a NIC and links of its own; starting, sending and reducing cost nothing.
IDEAL = Machine(
    name="ideal",
    nodes=4096,
    ranks_per_node=4096,
    nics_per_node=4096,
    node=Node(latency_s=1e-6, bandwidth_Bps=1e11),
    network=Network(latency_s=5e-6, bandwidth_Bps=1e10),
    overhead_s=0.0,
    launch_s=0.0,
    reduce_Bps=math.inf,
    copy_Bps=math.inf,
    segment_bytes=1 << 19,
)

_latencies = st.floats(0, 1e-4)
_rates = st.floats(1e8, 1e12)


@st.composite
def any_machine(draw: st.DrawFn) -> Machine:
    """Any machine whose network is no faster than a node's links."""
    fast, slow = sorted((draw(_rates), draw(_rates)), reverse=True)
    near, far = sorted((draw(_latencies), draw(_latencies)))
    network = Network(far, slow, draw(st.sampled_from([0, 1, 2, 3])), draw(_rates))
    return replace(
        IDEAL,
        nics_per_node=draw(st.integers(1, 5)),
        node=Node(near, fast, draw(st.just(math.inf) | _rates), draw(st.booleans())),
        network=network,
        overhead_s=draw(_latencies),
        launch_s=draw(_latencies),
        reduce_Bps=draw(_rates),
        copy_Bps=draw(_rates),
        segment_bytes=draw(st.integers(1, 1 << 20)),
        shuffles=draw(st.booleans()),
    )


@st.composite
def uncontended_machine(draw: st.DrawFn) -> Machine:
    """A machine on which no two messages of different ranks want the same thing."""
    machine = draw(any_machine())
    return replace(
        machine,
        nics_per_node=IDEAL.nics_per_node,
        node=replace(machine.node, shared_Bps=math.inf),
        network=replace(machine.network, group_nodes=0),
    )
