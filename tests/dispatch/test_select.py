"""The order of policies: call, preference, model in its range, cost model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import REQUEST, everywhere, model, threshold

from pccl_jax import schedule
from pccl_jax.dispatch import Request, select
from pccl_jax.dispatch.candidates import candidates
from pccl_jax.dispatch.cost import ALGORITHMS
from pccl_jax.dispatch.model import Model
from pccl_jax.errors import ConfigurationError
from pccl_jax.types import Collective, Op

GATHER = replace(REQUEST, collective=Collective.ALL_GATHER)


def use(made: Model, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "m.json").write_text(made.to_json())
    monkeypatch.setenv("PCCL_MODEL", str(folder / "m.json"))


def test_who_outranks_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(model(all_reduce=everywhere("ring")), tmp_path, monkeypatch)
    assert select(REQUEST, "rec", "latency").algorithm == "rec"
    assert select(REQUEST, None, "latency").algorithm == "latency"
    choice = select(REQUEST)
    assert choice.algorithm == "ring"
    assert choice.reason.startswith("learned: m.json (measured, ")
    gathered = select(GATHER)  # the model knows no all_gather
    assert gathered.reason.startswith("cost model of host: ")
    assert select(GATHER, None, "latency").reason == gathered.reason  # latency has none either
    assert select(replace(REQUEST, nodes=1, local=1)).algorithm == "xla"


def test_nothing_is_left_to_xla_over_a_communicator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(model(all_gather=everywhere("xla"), all_reduce=everywhere("xla")), tmp_path, monkeypatch)
    for request in (REQUEST, GATHER):
        over = replace(request, communicator=True, axis="a communicator of 8 processes")
        assert select(request).algorithm == "xla"
        assert "xla" not in candidates(over)
        assert select(over).algorithm in ALGORITHMS
        preferred = select(over, None, "xla")
        assert preferred.algorithm in ALGORITHMS
        assert "xla was preferred, but XLA does not connect" in preferred.reason
        with pytest.raises(ConfigurationError, match="over a communicator of 8 processes: XLA"):
            select(over, "xla")


def test_out_of_range_is_up_to_the_cost_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(model(all_reduce=everywhere("ring", 10.0, 12.0)), tmp_path, monkeypatch)
    for nbytes, learned in ((1023, False), (1024, True), (4096, True), (4097, False), (0, False)):
        assert select(replace(REQUEST, nbytes=nbytes)).reason.startswith("learned") == learned


def test_the_size_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(model(all_reduce=threshold("latency", "hier_ring", 16.0)), tmp_path, monkeypatch)
    assert select(replace(REQUEST, nbytes=1 << 10)).algorithm == "latency"
    assert select(replace(REQUEST, nbytes=1 << 20)).algorithm == "hier_ring"


@pytest.mark.parametrize(
    ("learned", "request_", "served"),
    [
        ("hier_ring", replace(REQUEST, even=False, nodes=5, local=1), False),
        ("ring", replace(REQUEST, even=False, nodes=5, local=1), True),
        ("mpi", REQUEST, False),
        ("mpi", replace(REQUEST, mpi="mpich"), True),
        ("mpi", replace(REQUEST, mpi="mpich", ranks_per_process=2), False),
        ("mpi", replace(REQUEST, mpi="mpich", dtype="bfloat16"), False),
        ("xla", REQUEST, True),
        ("xla", replace(REQUEST, dtype="bfloat16"), False),
        ("xla", replace(REQUEST, op=Op.PROD), False),
        ("unheard_of", REQUEST, False),
    ],
)
def test_what_cannot_serve_is_not_chosen(
    learned: str,
    request_: Request,
    served: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(model(all_reduce=everywhere(learned)), tmp_path, monkeypatch)
    choice = select(request_)
    assert (choice.algorithm == learned) == served
    assert choice.reason.startswith("learned") == served
    assert choice.algorithm in candidates(request_)


@pytest.mark.parametrize("collective", list(Collective))
@pytest.mark.parametrize(("nodes", "local", "even"), [(1, 2, True), (3, 4, True), (7, 1, False)])
def test_the_cost_model_serves_everything(
    collective: Collective, nodes: int, local: int, even: bool
) -> None:
    for exponent in range(0, 31, 3):
        request = replace(
            REQUEST,
            collective=collective,
            nbytes=1 << exponent,
            nodes=nodes,
            local=local,
            even=even,
        )
        choice = select(request)
        assert choice.algorithm in ALGORITHMS
        assert even or not schedule.is_hierarchical(choice.algorithm)
        schedule.build(choice.algorithm, collective, nodes, local)


def test_ranks_of_one_node_share_memory() -> None:
    for nbytes in (8, 4096, 1 << 20, 1 << 28):
        assert select(replace(GATHER, nodes=1, local=8, nbytes=nbytes)).algorithm == "hier_rec"


def test_the_machine_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCCL_MACHINE", "frontier")
    choice = select(replace(GATHER, nodes=256, local=8, nbytes=16 << 20))
    assert choice.reason.startswith("cost model of frontier")
    assert choice.algorithm == "hier_rec"


def test_what_was_measured_on_cpu_devices_says_nothing_of_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_gpu = replace(REQUEST, platform="cuda")
    measured = model(all_reduce=everywhere("ring"))
    use(measured, tmp_path, monkeypatch)
    assert select(REQUEST).reason.startswith("learned: ")
    assert select(on_gpu).reason.startswith("cost model of h200: ")
    simulated = Model({"name": "moon"}, True, {}, measured.svms)  # somebody has named it
    other = tmp_path / "other"
    other.mkdir()
    use(simulated, other, monkeypatch)
    assert select(on_gpu).reason.startswith("learned: m.json (simulated, ")
    monkeypatch.setenv("PCCL_MODEL", "none")
    monkeypatch.setenv("PCCL_MACHINE", "perlmutter")
    assert select(on_gpu).reason.startswith("cost model of perlmutter: ")


def test_mpi_is_no_candidate_on_gpus() -> None:
    joined = replace(REQUEST, mpi="mpich")
    assert "mpi" in candidates(joined)
    on_gpu = replace(joined, platform="rocm")
    assert "mpi" not in candidates(on_gpu)
    with pytest.raises(ConfigurationError, match="for CPU devices, these are rocm"):
        select(on_gpu, "mpi")
    assert "mpi was preferred, but MPI's own" in select(on_gpu, None, "mpi").reason
