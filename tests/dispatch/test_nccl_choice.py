"""When algorithm `hier_nccl` is taken, and what is said where it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic import REQUEST, assert_refused

from pccl_jax.dispatch import select
from pccl_jax.dispatch.cost import predicted_s

ON_GPUS = replace(REQUEST, platform="cuda")
REFUSED = {
    "NCCL is for GPUs, these are cpu devices": REQUEST,
    "different numbers of ranks": replace(ON_GPUS, even=False, nodes=4, local=1),
}


def test_only_on_request() -> None:
    assert select(ON_GPUS).algorithm != "hier_nccl"
    assert select(ON_GPUS, "hier_nccl").algorithm == "hier_nccl"
    assert select(ON_GPUS, None, "hier_nccl").algorithm == "hier_nccl"


@pytest.mark.parametrize("reason", REFUSED)
def test_refused(reason: str) -> None:
    assert_refused(REFUSED[reason], "hier_nccl", reason)


def test_its_cost_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the machine has no figures for NCCL, that of the ring it is most like."""
    for machine, same in (("h200", False), ("host", True)):
        monkeypatch.setenv("PCCL_MACHINE", machine)
        ring, nccl = (select(ON_GPUS, name) for name in ("hier_ring", "hier_nccl"))
        assert (predicted_s(nccl) == predicted_s(ring)) == same
