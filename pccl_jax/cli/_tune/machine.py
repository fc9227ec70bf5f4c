"""The cost model's figures of this machine, from the same measurements as the learned model."""

from __future__ import annotations

from dataclasses import replace

from pccl_jax import schedule
from pccl_jax.cli._tune.sources import Source
from pccl_jax.dispatch.machine import short_name
from pccl_jax.simulate import Machine, Timing, calibrate, load_machine
from pccl_jax.types import Collective

#: Where the fit begins, and what it keeps where nothing was measured.
_BEGIN = "host"


def calibrated(source: Source) -> Machine | None:
    """The machine that explains the samples best; None where none is of an algorithm of ours."""
    timings = [
        Timing(
            Collective[point.collective.upper()],
            sample.algorithm,
            point.nbytes,
            point.nodes,
            point.ranks // point.nodes,
            sample.median_s,
        )
        for sample in source.samples
        for point in [sample.point]
        if sample.algorithm in schedule.names() and point.ranks % point.nodes == 0
    ]
    if not timings:
        return None
    machine = calibrate(load_machine(_BEGIN), timings)
    return replace(
        machine,
        name=f"tuned_{short_name(source.machine)}",
        description=f"fitted by `pccl-jax tune` to {len(timings)} measured times",
    )
