"""The models that come along, on sizes and groups that they have not been trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pccl_jax.dispatch.learned import SHIPPED, read_model
from pccl_jax.dispatch.predict import choose
from pccl_jax.dispatch.samples import Point
from pccl_jax.simulate import load_machine, sweep
from pccl_jax.simulate.sweep import NODES, SIZES
from pccl_jax.types import Collective

MACHINES = ("frontier", "perlmutter")
OTHER_SIZES = tuple(5 << power for power in range(9, 27, 2))
OTHER_NODES = (6, 24, 96)
#: As in training: times that are closer are not told apart.
TIE = 1.02


def path_of(name: str) -> Path:
    return SHIPPED / f"{name}.json"


@pytest.mark.parametrize("name", MACHINES)
def test_they_are_labelled(name: str) -> None:
    model = read_model(path_of(name))
    assert model.simulated
    assert model.machine == {"name": name}
    assert set(model.svms) == {collective.label for collective in Collective}
    assert path_of(name).stat().st_size < 100_000
    for svm in model.svms.values():
        assert float(svm.quality["accuracy"] or 0) >= 0.75
        assert float(svm.quality["regret_mean"] or 9) <= 1.05


@pytest.mark.parametrize("collective", Collective)
@pytest.mark.parametrize("name", MACHINES)
def test_they_choose_well(name: str, collective: Collective) -> None:
    """At least 75 % right and a mean regret of 1.05 at most: the paper has 75 to 95.4 % right."""
    assert not set(OTHER_SIZES) & set(SIZES)
    assert not set(OTHER_NODES) & set(NODES)
    machine = load_machine(name)
    shapes = [(nodes, local) for nodes in OTHER_NODES for local in (1, machine.ranks_per_node)]
    svm = read_model(path_of(name)).svms[collective.label]
    cells: dict[Point, dict[str, float]] = {}
    for t in sweep(machine, collective, shapes, OTHER_SIZES):
        point = Point(collective.label, t.nbytes, t.nodes * t.local, t.nodes)
        algorithm = "xla" if t.algorithm == "nccl" else t.algorithm
        cells.setdefault(point, {})[algorithm] = t.seconds
    regrets = []
    for point, times in cells.items():
        assert svm.covers(point)
        chosen = choose(svm, svm.values(point), frozenset(times))
        assert chosen is not None
        regrets.append(times[chosen] / min(times.values()))
    assert np.mean(np.array(regrets) <= TIE) >= 0.75
    assert np.mean(regrets) <= 1.05
