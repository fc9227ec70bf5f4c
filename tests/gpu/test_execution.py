"""The GPU executor, rank by rank on threads: every algorithm, collective, shape, type, operator."""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import replace

import numpy as np
import pytest

from pccl_jax.schedule import (
    Action,
    Index,
    Schedule,
    Step,
    build,
    encode,
    gpu_scratch_bytes,
    names,
    supports,
)
from pccl_jax.types import GPU_REDUCE_DTYPES, REDUCE_DTYPES, Collective, Op

from .group import (
    AWARE_MPI,
    MPI,
    NCCL,
    Case,
    Knobs,
    call_of,
    chunk_count,
    execute,
    run,
    scratch_bytes,
)

SHAPES = [(n, 1) for n in range(1, 17)] + [
    *((1, 2), (1, 3), (1, 8), (2, 2), (2, 3), (2, 8), (3, 5), (4, 2), (4, 4), (5, 3), (8, 2)),
]
#: Threads that poll for messages of one another are many for two cores.
FEW_SHAPES = [(2, 1), (5, 1), (8, 1), (1, 3), (1, 8), (2, 2), (3, 2), (2, 3), (4, 2)]
ALGORITHMS = (*names(), "hier_nccl")
SETTINGS = {
    "nccl": (NCCL, NCCL),
    "nccl inside, mpi between": (NCCL, MPI),
    "mpi": (MPI, MPI),
    "nccl inside, gpu-aware mpi between": (NCCL, AWARE_MPI),
}


def schedules(nodes: int, local: int) -> list[Schedule]:
    return [
        build(name, collective, nodes, local)
        for name in ALGORITHMS
        for collective in Collective
        if supports(name, collective)
    ]


@pytest.mark.parametrize(("nodes", "local"), SHAPES)
def test_every_algorithm_on_every_shape(fake: ctypes.CDLL, nodes: int, local: int) -> None:
    for schedule in schedules(nodes, local):
        for count in (1, 7, 48):
            assert run(fake, Case(schedule, chunk_count(count, schedule), "int32")) == ""


@pytest.mark.parametrize("transports", [name for name in SETTINGS if "mpi" in name])
@pytest.mark.parametrize(("nodes", "local"), FEW_SHAPES)
def test_every_algorithm_over_mpi(
    fake: ctypes.CDLL, nodes: int, local: int, transports: str
) -> None:
    for schedule in schedules(nodes, local):
        case = Case(schedule, chunk_count(7, schedule), transports=SETTINGS[transports])
        assert run(fake, case) == ""


def _reductions() -> list[tuple[str, Op]]:
    kinds = itertools.product(REDUCE_DTYPES, Op)
    return [(t, op) for t, op in kinds if not (t.startswith("complex") and op > Op.PROD)]


@pytest.mark.parametrize(("dtype", "op"), _reductions())
def test_every_type_and_operator(fake: ctypes.CDLL, dtype: str, op: Op) -> None:
    """By NCCL where it has the reduction, by messages and our kernels where it has not."""
    for name, collective in itertools.product(
        ("rec", "hier_ring", "hier_nccl"), (Collective.REDUCE_SCATTER, Collective.ALL_REDUCE)
    ):
        schedule = build(name, collective, 3, 4)
        assert run(fake, Case(schedule, chunk_count(5, schedule), dtype, op)) == ""


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float8_e5m2", "bfloat16", "complex128"])
def test_gathers_move_any_type(fake: ctypes.CDLL, dtype: str) -> None:
    for name in ("ring", "hier_rec", "hier_nccl"):
        assert run(fake, Case(build(name, Collective.ALL_GATHER, 3, 2), 3, dtype)) == ""
    assert set(GPU_REDUCE_DTYPES) >= {dtype}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("op", [Op.MAX, Op.MIN])
def test_nan_wins(fake: ctypes.CDLL, op: Op, dtype: str) -> None:
    class WithNan(Case):
        def inputs(self) -> list[np.ndarray]:
            inputs = super().inputs()
            inputs[3][0, 2] = np.nan
            return inputs

    for name in ("hier_rec", "hier_nccl"):
        schedule = build(name, Collective.ALL_REDUCE, 2, 4)
        assert run(fake, WithNan(schedule, 9, dtype, op)) == ""


@pytest.mark.parametrize("transports", ["nccl", "mpi"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_all_ranks_get_the_same_bits(fake: ctypes.CDLL, dtype: str, transports: str) -> None:
    """Of sums that depend on the order."""
    rng = np.random.default_rng(0)
    for name, (nodes, local) in itertools.product(ALGORITHMS, [(6, 1), (1, 5), (3, 2)]):
        inputs = [rng.standard_normal((1, 77)).astype(dtype) for _ in range(nodes * local)]
        schedule = build(name, Collective.ALL_REDUCE, nodes, local)
        case = Case(schedule, 77, dtype, transports=SETTINGS[transports])
        errors, results = execute(fake, case, inputs, inputs[0].nbytes)
        assert errors == ""
        assert len({result.tobytes() for result in results}) == 1, name


PERMUTED = (3, 0, 5, 1, 4, 2)


@pytest.mark.parametrize("collective", [Collective.ALL_GATHER, Collective.REDUCE_SCATTER])
@pytest.mark.parametrize(("rows", "count"), [(1, 5), (3, 6), (4, 4), (2, 20)])
@pytest.mark.parametrize("places", [None, PERMUTED], ids=["in order", "permuted"])
def test_later_dimensions_and_permuted_devices(
    fake: ctypes.CDLL,
    collective: Collective,
    rows: int,
    count: int,
    places: tuple[int, ...] | None,
) -> None:
    shapes = [(6, 1), (1, 6), (3, 2), (2, 3)]
    for name, (nodes, local) in itertools.product(("ring", "hier_rec", "hier_nccl"), shapes):
        for transports in (SETTINGS["nccl"], SETTINGS["mpi"]):
            schedule = build(name, collective, nodes, local)
            case = Case(schedule, count, rows=rows, places=places, transports=transports)
            assert run(fake, case) == ""


@pytest.mark.parametrize("count", [66000, 65999])
@pytest.mark.parametrize("transports", ["nccl", "mpi"])
def test_large_chunks(fake: ctypes.CDLL, count: int, transports: str) -> None:
    """Several segments of a message; one NCCL collective for every node, straight into place."""
    for name, collective in itertools.product(("hier_ring", "hier_nccl"), Collective):
        schedule = build(name, collective, 2, 2)
        vector = count * (4 if collective is Collective.ALL_REDUCE else 1) - count % 2
        case = Case(schedule, vector, transports=SETTINGS[transports])
        assert run(fake, case) == ""


def test_repeated_calls_reuse_pinned_slots(fake: ctypes.CDLL) -> None:
    for collective in Collective:
        schedule = build("rec", collective, 3, 1)
        case = Case(schedule, 900_001, "int16", transports=(MPI, MPI))
        assert run(fake, case, repeats=3) == ""


def test_several_devices_of_a_process_over_mpi(fake: ctypes.CDLL) -> None:
    """Messages of two devices to the same process are told apart."""
    for name, collective in itertools.product(("ring", "hier_rec"), Collective):
        schedule = build(name, collective, 4, 2)
        for each in (2, 4):
            case = Case(schedule, 11, transports=(MPI, MPI))
            assert run(fake, replace(case, settings={"devices_in_process": each})) == ""


@pytest.mark.parametrize("collective", Collective)
def test_native_collectives_need_less_scratch(fake: ctypes.CDLL, collective: Collective) -> None:
    for name, (nodes, local) in itertools.product(ALGORITHMS, [(4, 2), (1, 8), (8, 1)]):
        if supports(name, collective):
            case = Case(build(name, collective, nodes, local), 24)
            assert run(fake, case, native=True) == ""


def test_scratch_is_what_python_reserves(fake: ctypes.CDLL) -> None:
    shapes = [(1, 1), (7, 1), (1, 6), (2, 3), (5, 4)]
    for (nodes, local), count in itertools.product(shapes, (1, 5, 96, 1000)):
        for schedule in schedules(nodes, local):
            n = 1 if schedule.collective is Collective.ALL_REDUCE else schedule.ranks
            sizes = (4 * count, 4 * count * n)
            if schedule.collective is Collective.REDUCE_SCATTER:
                sizes = sizes[::-1]
            for rows in (1, count):
                program, case = encode(schedule), Case(schedule, count, rows=rows)
                axis = case.axis
                needed, _ = scratch_bytes(fake, call_of(case, program, axis, *sizes))
                regular = rows == 1
                assert gpu_scratch_bytes(schedule, *sizes, regular=regular) == needed
                assert gpu_scratch_bytes(schedule, *sizes) >= needed


@pytest.mark.parametrize("collective", Collective)
def test_communicators_in_another_order(fake: ctypes.CDLL, collective: Collective) -> None:
    """XLA numbers the devices of its communicators as it likes."""
    for name, (nodes, local) in itertools.product(ALGORITHMS, [(4, 2), (1, 5), (6, 1)]):
        if supports(name, collective):
            case = Case(build(name, collective, nodes, local), 10, settings={"reversed": 1})
            assert run(fake, case) == ""


def test_missing_rank_is_a_deadlock_that_is_found(fake: ctypes.CDLL) -> None:
    case = Case(build("hier_rec", Collective.ALL_REDUCE, 4, 2), 10, settings={"missing": 5})
    assert "start of a communicator" in run(fake, case)


def test_missing_rank_ends_the_wait_for_mpi(fake: ctypes.CDLL) -> None:
    settings = {"missing": 2, "timeout_s": 0.3}
    for transport in (MPI, AWARE_MPI):
        schedule = build("ring", Collective.ALL_GATHER, 4, 1)
        case = Case(schedule, 10, transports=(transport, transport), settings=settings)
        errors = run(fake, case)
        assert "rank 2" in errors
        assert "waited" in errors


def gather(*steps: Step) -> Schedule:
    """All-gathers among three ranks, which no checker has seen."""
    return Schedule(Collective.ALL_GATHER, "test", 3, 1, True, steps)


FORTH, BACK = (Step(Index(add=k), Index(), 1, Action.COPY, (0, 3)) for k in (1, 2))


@pytest.mark.parametrize(
    ("other", "error"),
    [
        (gather(FORTH, BACK), ""),
        (gather(BACK, FORTH), "deadlock"),
        (gather(FORTH, replace(FORTH, to=Index(flip=1), senders=(0, 2))), "deadlock"),
        (gather(FORTH, replace(BACK, count=2, first=Index(add=-1))), " bytes, rank "),
    ],
    ids=["alike", "another order", "a round less", "another size"],
)
def test_a_rank_that_runs_another_program_is_found(
    fake: ctypes.CDLL, other: Schedule, error: str
) -> None:
    program = encode(other)
    case = Case(gather(FORTH, BACK), 1, settings={"other_program": program.ctypes.data})
    errors = run(fake, case)
    assert error in errors
    assert bool(error) == bool(errors)


def test_mpi_is_not_recorded_in_a_graph(fake: ctypes.CDLL) -> None:
    schedule = build("ring", Collective.ALL_GATHER, 2, 1)
    case = Case(schedule, 4, settings={"capturing": 1})
    assert run(fake, case) == ""
    case.transports = (MPI, MPI)
    assert "cannot be recorded in a CUDA graph" in run(fake, case)


def test_a_group_of_nccl_is_ended_where_a_call_fails(fake: ctypes.CDLL, knobs: Knobs) -> None:
    """It is the thread's: whatever XLA did next on it would wait for the end of the group."""
    knobs["nccl failing sends"] = 4
    case = Case(build("ring", Collective.ALL_GATHER, 4, 1), 10)
    errors = run(fake, case).splitlines()
    assert errors == ["NCCL: send: invalid usage; NCCL_DEBUG=WARN prints more"] * 4
    assert knobs["nccl groups open"] == 0
    assert run(fake, case) == ""


def test_communicators_that_do_not_block(
    fake: ctypes.CDLL, knobs: Knobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As XLA's are with --xla_gpu_nccl_blocking_communicators=false."""
    for name, collective in itertools.product(("rec", "hier_nccl"), Collective):
        knobs["nccl in progress"] = 40
        assert run(fake, Case(build(name, collective, 2, 2), 12)) == ""
        assert knobs["nccl in progress"] < 40
    knobs["nccl in progress"] = 1 << 40
    monkeypatch.setenv("PCCL_TIMEOUT_S", "0.2")
    errors = run(fake, Case(build("rec", Collective.ALL_GATHER, 2, 1), 12)).splitlines()
    assert len(errors) == 2
    assert all("has not begun within" in error for error in errors)


MIB = 1 << 20


@pytest.mark.parametrize(
    ("transport", "most", "segments"), [(MPI, MIB, 6), (AWARE_MPI, 8 * MIB, 2)]
)
@pytest.mark.parametrize("shape", [(2, 1), (1, 3)], ids=["steps", "within the node"])
def test_what_has_come_is_reduced_while_the_rest_is_on_its_way(
    fake: ctypes.CDLL,
    knobs: Knobs,
    shape: tuple[int, int],
    transport: int,
    most: int,
    segments: int,
) -> None:
    """Segment by segment; the last is short."""
    schedule = build("hier_rec", Collective.REDUCE_SCATTER, *shape)
    knobs["reductions"] = knobs["largest reduction"] = knobs["receives after a reduction"] = 0
    count = (segments - 1) * most // 8 + 3
    assert run(fake, Case(schedule, count, "int64", transports=(transport, transport))) == ""
    assert knobs["reductions"] == segments * schedule.ranks
    assert knobs["largest reduction"] == most
    assert transport == AWARE_MPI or knobs["receives after a reduction"] > 0


def test_nothing_is_overwritten_before_it_was_sent(fake: ctypes.CDLL, knobs: Knobs) -> None:
    """Recursive doubling of a whole vector folds into what it sends, here faster than it does."""
    knobs["slowness of what odd devices send"] = 300
    for nodes in (2, 4):
        schedule = build("latency", Collective.ALL_REDUCE, nodes, 1)
        case = Case(schedule, 9 * MIB // 8 + 1, "int64", transports=(MPI, MPI))
        assert run(fake, case) == ""


def test_after_an_error_messages_may_be_in_flight(fake: ctypes.CDLL) -> None:
    settings = {"missing": 2, "timeout_s": 0.3, "again": 1}
    for transport in (MPI, AWARE_MPI):
        schedule = build("ring", Collective.ALL_GATHER, 3, 1)
        case = Case(schedule, 10, transports=(transport, transport), settings=settings)
        errors = run(fake, case).splitlines()
        assert len(errors) == 2
        assert all("an earlier call may still be in flight" in error for error in errors)


def test_messages_of_another_collective_are_not_taken_for_ours(fake: ctypes.CDLL) -> None:
    settings = {"other_call": 1, "timeout_s": 0.3}
    for transport in (MPI, AWARE_MPI):
        schedule = build("ring", Collective.ALL_GATHER, 2, 1)
        case = Case(schedule, 10, transports=(transport, transport), settings=settings)
        assert len(run(fake, case).splitlines()) == 2


def test_nothing_is_overwritten_before_it_was_read(fake: ctypes.CDLL) -> None:
    assert fake.fake_receive_follows_reads() == 1
