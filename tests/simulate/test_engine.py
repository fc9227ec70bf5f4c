"""The simulation: against plain loops, against the closed form, and against what no machine can."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pccl_jax import schedule as schedules
from pccl_jax.errors import ConfigurationError
from pccl_jax.simulate import Machine, estimate, load_machine, simulate
from pccl_jax.types import Collective

from .brute_force import finish_times
from .machines import IDEAL, any_machine, uncontended_machine

NAMES = ("ring", "rec", "hier_ring", "hier_rec", "latency")
SIZES = st.floats(0, 1 << 26) | st.integers(0, 1 << 26)


@st.composite
def runs(draw: st.DrawFn) -> tuple[Collective, str, int, int]:
    """A collective, an algorithm that has it, and the shape of a group."""
    name = draw(st.sampled_from(NAMES))
    able = [c for c in Collective if schedules.supports(name, c)]
    return draw(st.sampled_from(able)), name, draw(st.integers(1, 9)), draw(st.integers(1, 5))


def seconds(run: tuple[Collective, str, int, int], nbytes: float, machine: Machine) -> float:
    collective, name, nodes, local = run
    return simulate(collective, name, nbytes, nodes, local, machine).seconds


def close(value: float) -> object:
    return pytest.approx(value, rel=1e-9, abs=1e-15)


@settings(deadline=None, max_examples=60)
@given(runs(), SIZES, any_machine())
def test_plain_loops_agree(
    run: tuple[Collective, str, int, int], nbytes: float, machine: Machine
) -> None:
    collective, name, nodes, local = run
    got = simulate(collective, name, nbytes, nodes, local, machine)
    schedule = schedules.build(name, collective, nodes, local)
    last, each = finish_times(schedule, nbytes, local, machine)
    assert got.seconds == close(last)
    assert got.finish_s == close(each)


@settings(deadline=None, max_examples=60)
@given(runs(), SIZES, uncontended_machine())
def test_closed_form_agrees_where_nothing_is_shared(
    run: tuple[Collective, str, int, int], nbytes: float, machine: Machine
) -> None:
    """Exactly where every rank does the same. Else chains of messages may also have to wait for
    what is busy: the sum of the two is no more than twice the larger, which is the estimate."""
    collective, name, nodes, local = run
    estimated = estimate(collective, name, nbytes, nodes, local, machine)
    one_kind_of_link = local == 1 or schedules.is_hierarchical(name)
    if one_kind_of_link and (name != "latency" or nodes in (1, 2, 4, 8)):
        assert seconds(run, nbytes, machine) == close(estimated)
    else:
        assert seconds(run, nbytes, machine) <= 2 * estimated * (1 + 1e-9)


@pytest.mark.parametrize("machine", ["frontier", "perlmutter", "host", "cluster"])
def test_closed_form_is_near_on_real_machines(machine: str) -> None:
    ratios = []
    for collective in Collective:
        for name in schedules.names(collective)[:5]:
            for nodes, local in ((1, 4), (3, 4), (16, 4), (64, 4)):
                for nbytes in (1 << 10, 1 << 20, 1 << 28):
                    at = (collective, name, nbytes, nodes, local, load_machine(machine))
                    ratios.append(simulate(*at).seconds / estimate(*at))
    assert min(ratios) > 0.7
    assert max(ratios) < 1.05


@settings(deadline=None, max_examples=60)
@given(runs(), SIZES, any_machine())
def test_bounds(run: tuple[Collective, str, int, int], nbytes: float, machine: Machine) -> None:
    """Nobody beats the bandwidth of a node or of a rank, nor log2 of the nodes in latencies."""
    collective, _, nodes, local = run
    ways = 2 if collective is Collective.ALL_REDUCE else 1
    got = seconds(run, nbytes, machine)
    if nodes > 1:
        nics = min(local, machine.nics_per_node)
        enters = nbytes * (nodes - 1) / nodes
        assert got >= enters / (nics * machine.network.bandwidth_Bps) * (1 - 1e-9)
        assert got >= math.ceil(math.log2(nodes)) * machine.network.latency_s * (1 - 1e-9)
    if nodes * local > 1:
        fastest = max(local - 1, 0) * machine.node.bandwidth_Bps + machine.network.bandwidth_Bps
        share = ways * nbytes * (nodes * local - 1) / (nodes * local)
        assert got >= share / max(fastest, machine.node.bandwidth_Bps) * (1 - 1e-9)


@settings(deadline=None, max_examples=60)
@given(runs(), SIZES, SIZES, any_machine())
def test_more_bytes_take_no_less(
    run: tuple[Collective, str, int, int], one: float, other: float, machine: Machine
) -> None:
    less, more = sorted((one, other))
    assert seconds(run, less, machine) <= seconds(run, more, machine) * (1 + 1e-9)


@settings(deadline=None, max_examples=60)
@given(runs(), SIZES, any_machine(), st.integers(2, 4))
def test_more_nics_are_never_slower(
    run: tuple[Collective, str, int, int], nbytes: float, machine: Machine, times: int
) -> None:
    """By a whole factor, so that ranks that shared a NIC are spread and none come together.

    Without groups: where messages queue twice, coming earlier to one queue can change the order
    at the other for the worse (Graham's anomaly).
    """
    machine = replace(machine, network=replace(machine.network, group_nodes=0))
    more = replace(machine, nics_per_node=machine.nics_per_node * times)
    assert seconds(run, nbytes, more) <= seconds(run, nbytes, machine) * (1 + 1e-9)


@pytest.mark.parametrize("collective", Collective)
@pytest.mark.parametrize("name", ["ring", "rec", "hier_ring", "hier_rec"])
def test_counts(name: str, collective: Collective) -> None:
    """Messages and bytes between nodes are those of the algorithm's label."""
    nodes, local, nbytes = 6, 4, 24_000.0
    ways = 2 if collective is Collective.ALL_REDUCE else 1
    run = simulate(collective, name, nbytes, nodes, local, IDEAL)
    n = nodes if schedules.is_hierarchical(name) else nodes * local
    rounds = n - 1 if "ring" in name else math.ceil(math.log2(n))
    assert run.messages == ways * rounds * nodes * local
    if name.startswith("hier"):
        assert run.network_bytes == close(ways * nbytes * (nodes - 1))
    elif name == "ring":
        assert run.network_bytes == close(ways * nbytes * (n - 1) / n * nodes)


def test_sharing_a_nic_halves_the_bandwidth() -> None:
    at = (Collective.ALL_GATHER, "hier_rec", 8 << 20, 2, 2)
    alone = simulate(*at, IDEAL).seconds
    together = simulate(*at, replace(IDEAL, nics_per_node=1)).seconds
    assert together - alone == close((2 << 20) / IDEAL.network.bandwidth_Bps)


def test_links_between_groups_limit_what_crosses() -> None:
    """Recursive doubling sends half of everything in its last, farthest step."""
    narrow = replace(IDEAL.network, group_nodes=2, group_Bps=IDEAL.network.bandwidth_Bps)
    machine = replace(IDEAL, network=narrow)
    wide, taper = (
        simulate(Collective.ALL_GATHER, "rec", 4 << 20, 4, 1, m).seconds for m in (IDEAL, machine)
    )
    assert taper - wide == close((2 << 20) / IDEAL.network.bandwidth_Bps)


def test_a_group_of_one_takes_no_time() -> None:
    assert simulate(Collective.ALL_REDUCE, "ring", 1 << 20, 1, 1, load_machine("host")).seconds == 0


@pytest.mark.parametrize("name", ["mpi", "nccl", "nope"])
def test_only_schedules_can_be_played(name: str) -> None:
    with pytest.raises(ConfigurationError):
        simulate(Collective.ALL_GATHER, name, 1, 2, 2, IDEAL)
    with pytest.raises(ConfigurationError, match="expected no negative"):
        simulate(Collective.ALL_GATHER, "ring", -1, 2, 2, IDEAL)


@pytest.mark.timeout(60)
def test_2048_ranks_take_seconds() -> None:
    frontier = load_machine("frontier")
    start = time.perf_counter()
    run = simulate(Collective.ALL_GATHER, "ring", 64 << 20, 256, 8, frontier)
    assert time.perf_counter() - start < 20  # about a second on an idle machine
    assert run.messages == 2047 * 2048
    assert run.finish_s.shape == (2048,)
    assert np.all(run.finish_s <= run.seconds)
