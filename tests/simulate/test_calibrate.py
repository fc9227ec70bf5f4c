"""Calibration finds the figures of a machine again, from its times."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from pccl_jax.errors import ConfigurationError
from pccl_jax.simulate import (
    Machine,
    Network,
    Node,
    Timing,
    calibrate,
    dump_machine,
    estimate,
    load_machine,
    machine_names,
    parse_machine,
)
from pccl_jax.types import Collective

HOST = load_machine("host")
TRUE = replace(
    HOST,
    launch_s=60e-6,
    node=Node(latency_s=12e-6, bandwidth_Bps=9e9, shared_Bps=30e9),
    network=Network(latency_s=200e-6, bandwidth_Bps=0.4e9),
)


def timings(machine: Machine, nodes: tuple[int, ...], noise: float = 0.0) -> list[Timing]:
    random = np.random.default_rng(0)
    return [
        Timing(
            collective,
            name,
            nbytes,
            n,
            4,
            estimate(collective, name, nbytes, n, 4, machine) * float(random.lognormal(0, noise)),
        )
        for collective in Collective
        for name in ("ring", "rec", "hier_ring", "hier_rec")
        for nbytes in (1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26)
        for n in nodes
    ]


def errors(machine: Machine, nodes: tuple[int, ...]) -> np.ndarray:
    """|log| of estimate over truth."""
    truth = timings(TRUE, nodes)
    got = [estimate(t.collective, t.algorithm, t.nbytes, t.nodes, t.local, machine) for t in truth]
    return np.abs(np.log(got) - np.log([t.seconds for t in truth]))


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_times_are_found_again(noise: float) -> None:
    fitted = calibrate(HOST, timings(TRUE, (1, 2, 4), noise))
    assert errors(HOST, (1, 2, 3, 4)).mean() > 0.5
    assert errors(fitted, (1, 2, 3, 4)).mean() < 0.1
    assert fitted.network.bandwidth_Bps == pytest.approx(0.4e9, rel=0.3)


def test_outliers_do_not_decide() -> None:
    samples = timings(TRUE, (1, 2, 4))
    disturbed = [
        replace(t, seconds=t.seconds * 50) if i % 10 == 0 else t for i, t in enumerate(samples)
    ]
    assert errors(calibrate(HOST, disturbed), (1, 2, 4)).mean() < 0.25


def test_what_nothing_tells_of_stays() -> None:
    fitted = calibrate(HOST, timings(TRUE, (1,)))
    assert fitted.network.latency_s == pytest.approx(HOST.network.latency_s)
    assert fitted.network.bandwidth_Bps == pytest.approx(HOST.network.bandwidth_Bps)
    assert fitted.launch_s != pytest.approx(HOST.launch_s, rel=0.1)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf")])
def test_refusals(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="more than 0 seconds"):
        calibrate(HOST, [Timing(Collective.ALL_GATHER, "ring", 8, 2, 1, seconds)])
    with pytest.raises(ConfigurationError, match="at least one timing"):
        calibrate(HOST, [])


@pytest.mark.parametrize("name", machine_names())
def test_files_can_be_written(name: str) -> None:
    machine = load_machine(name)
    assert alike(asdict(parse_machine(dump_machine(machine).encode())), asdict(machine))


def alike(got: Any, want: Any) -> bool:
    """Equal, but for the last bits of figures that have changed their unit twice."""
    if isinstance(want, dict):
        return got.keys() == want.keys() and all(alike(got[key], want[key]) for key in want)
    if isinstance(want, tuple):
        return len(got) == len(want) and all(map(alike, got, want))
    return type(got) is type(want) and (got == want or got == pytest.approx(want))
