"""The ranking of algorithms agrees with real runs, on a network whose figures are known.

``measured.json`` holds medians of real runs on an emulated cluster and the rate and latency that
its links were set to; nothing of the machine model was fitted to them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from pccl_jax.simulate import Machine, Network, load_machine, simulate
from pccl_jax.types import Collective

#: What is ahead by less is not held against anybody.
AHEAD = 1.2
#: Simulated times that are closer than this are equal.
EQUAL = 1.02

Cell = tuple[dict[str, float], dict[str, float]]


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    """Measured and simulated times by algorithm."""
    text = (Path(__file__).parent / "measured.json").read_text(encoding="utf-8")
    document = json.loads(text)
    machine = _machine(document)
    shape = document["nodes"], document["local"]
    return [
        (
            cell["median_ms"],
            {
                name: simulate(
                    Collective[cell["collective"].upper()], name, cell["nbytes"], *shape, machine
                ).seconds
                for name in cell["median_ms"]
            },
        )
        for cell in document["cells"]
    ]


def _machine(facts: dict[str, Any]) -> Machine:
    network = Network(facts["latency_us"] * 1e-6, facts["bandwidth_GBps"] * 1e9)
    return replace(load_machine("cluster"), nics_per_node=facts["nics"], network=network)


def test_the_best_is_the_best(cells: list[Cell]) -> None:
    """In at least 90 % of the cells in which the best is ahead by 20 %."""
    verdicts = []
    for measured, simulated in cells:
        best, second = sorted(measured, key=lambda name: measured[name])[:2]
        if measured[second] > AHEAD * measured[best]:
            verdicts.append(simulated[best] <= EQUAL * min(simulated.values()))
    assert len(verdicts) >= 6
    assert sum(verdicts) >= 0.9 * len(verdicts)


def test_the_order_is_the_order(cells: list[Cell]) -> None:
    """In at least 90 % of the pairs of algorithms that differ by 20 %."""
    verdicts = [
        simulated[fast] < EQUAL * simulated[slow]
        for measured, simulated in cells
        for fast, slow in permutations(measured, 2)
        if measured[slow] > AHEAD * measured[fast]
    ]
    assert len(verdicts) > 50
    assert sum(verdicts) >= 0.9 * len(verdicts)
