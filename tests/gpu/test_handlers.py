"""The FFI handlers, called as XLA does: which rank a device has, whose communicators it uses."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from pccl_jax.schedule import Inter, Schedule, build, encode, gpu_scratch_bytes
from pccl_jax.types import Collective, Op

from .group import Knobs

S32 = 4  # XLA's code of int32
NO_EXTENSION = -1


class _Program(ctypes.Structure):
    _fields_ = (
        ("collective", ctypes.c_int64),
        ("op", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("program", ctypes.c_void_p),
        ("program_size", ctypes.c_size_t),
        ("members", ctypes.c_void_p),
        ("places", ctypes.c_void_p),
        ("num_members", ctypes.c_size_t),
        ("devices", ctypes.c_void_p),
        ("num_devices", ctypes.c_size_t),
        ("dtype", ctypes.c_int32),
        ("in_count", ctypes.c_int64),
        ("out_count", ctypes.c_int64),
        ("scratch_bytes", ctypes.c_int64),
        ("ffi_minor", ctypes.c_int32),
        ("extension_minor", ctypes.c_int32),
        ("first_id", ctypes.c_int64),
        ("missing", ctypes.c_int32),
        ("hangs", ctypes.c_int32),
        ("again", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("other_site", ctypes.c_int32),
    )


@dataclass
class Program:
    """A collective in a program for a mesh of devices.

    Attributes:
        collective: what every group does.
        shape: nodes and ranks on each, of a group.
        groups: logical ids of each group, in order of schedule ranks.
        devices: ids of the mesh's devices, by logical id.
        algorithm: by which it is done.
        ffi: minor versions of XLA's FFI and of its collectives extension.
        first_id: the id of the process's first device.
        missing_scratch: bytes less than needed.
        schedule: in place of the algorithm's.
        missing: runs, of two, that the last device does not take part in.
        hangs: whether nobody notices that all devices wait.
        again: whether a device that fails tries once more.
        threads: that run the program at once on each device.
        other_site: whether the last device runs another call of the program.
    """

    collective: Collective
    shape: tuple[int, int]
    groups: list[list[int]]
    devices: list[int]
    algorithm: str = "hier_rec"
    ffi: tuple[int, int] = (5, 2)
    first_id: int = 0
    missing_scratch: int = 0
    schedule: Schedule | None = None
    missing: int = 0
    hangs: bool = False
    again: bool = False
    threads: int = 1
    other_site: bool = False
    keep: list[np.ndarray] = field(default_factory=list)

    def array(self, values: object) -> int:
        self.keep.append(np.ascontiguousarray(values, np.int64))
        return self.keep[-1].ctypes.data


def run(fake: ctypes.CDLL, p: Program, count: int = 12) -> str:
    """Runs it twice on every device and compares; returns the errors, a line for each device."""
    n = len(p.groups[0])
    big, small = (count, count) if p.collective is Collective.ALL_REDUCE else (count * n, count)
    gathers = p.collective is Collective.ALL_GATHER
    in_count, out_count = (small, big) if gathers else (big, small)
    schedule = p.schedule or build(p.algorithm, p.collective, *p.shape)
    program = encode(schedule)
    scratch = gpu_scratch_bytes(schedule, 4 * in_count, 4 * out_count) - p.missing_scratch
    raw = _Program(
        collective=p.collective,
        op=Op.SUM,
        rows=1,
        program=p.array(program),
        program_size=program.size,
        members=p.array(np.concatenate(p.groups)),
        places=p.array(np.tile(np.arange(n), len(p.groups))),
        num_members=n * len(p.groups),
        devices=p.array(p.devices),
        num_devices=len(p.devices),
        dtype=S32,
        in_count=in_count,
        out_count=out_count,
        scratch_bytes=scratch,
        ffi_minor=p.ffi[0],
        extension_minor=p.ffi[1],
        first_id=p.first_id,
        missing=p.missing,
        hangs=p.hangs,
        again=p.again,
        threads=p.threads,
        other_site=p.other_site,
    )
    rng = np.random.default_rng(0)
    ins = [rng.integers(-99, 99, in_count, np.int32) for _ in p.devices]
    outs = [np.full(out_count, -1, np.int32) for _ in p.devices]
    memory = [np.zeros(scratch, np.uint8) for _ in p.devices]
    errors = ctypes.create_string_buffer(1 << 16)
    pointers = [
        (ctypes.c_void_p * len(a))(*[x.ctypes.data for x in a]) for a in (ins, outs, memory)
    ]
    size = ctypes.c_size_t(len(errors))
    if fake.fake_program(ctypes.byref(raw), *pointers, errors, size):
        return errors.value.decode()
    for group in p.groups:
        for rank, device in enumerate(group):
            want = expected(p.collective, [ins[d] for d in group], rank)
            np.testing.assert_array_equal(outs[device], want)
    return ""


def expected(collective: Collective, inputs: list[np.ndarray], rank: int) -> np.ndarray:
    if collective is Collective.ALL_GATHER:
        return np.concatenate(inputs)
    total = np.sum(inputs, axis=0, dtype=np.int32)
    return total if collective is Collective.ALL_REDUCE else np.split(total, len(inputs))[rank]


TWO_GROUPS = [[0, 1, 4, 5], [2, 3, 6, 7]]
VERSIONS = {
    "jax 0.10": (3, NO_EXTENSION),
    "jax 0.11": (4, 1),
    "jax 0.12": (5, 2),
    "no extension": (5, NO_EXTENSION),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("collective", Collective)
def test_groups_of_a_mesh(handlers: ctypes.CDLL, collective: Collective, version: str) -> None:
    program = Program(collective, (2, 2), TWO_GROUPS, list(range(8)), ffi=VERSIONS[version])
    before = handlers.fake_num_given()
    for algorithm in ("hier_rec", "hier_nccl"):
        assert run(handlers, replace(program, algorithm=algorithm)) == ""
    assert run(handlers, replace(program, algorithm="ring", shape=(4, 1))) == ""
    given = handlers.fake_num_given() - before
    assert given == (0 if VERSIONS[version][1] == NO_EXTENSION else 2 * 16 + 8)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_rank_is_that_of_the_device(handlers: ctypes.CDLL, version: str) -> None:
    """The third device of the mesh may be any device of the process."""
    for devices in ([3, 1, 7, 0, 2, 6, 5, 4], list(range(7, -1, -1))):
        for collective in Collective:
            program = Program(collective, (2, 2), TWO_GROUPS, devices, ffi=VERSIONS[version])
            assert run(handlers, program) == ""
            assert run(handlers, replace(program, algorithm="hier_nccl")) == ""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("collective", Collective)
def test_one_rank(handlers: ctypes.CDLL, collective: Collective, version: str) -> None:
    """All that a machine with one GPU can try of NCCL."""
    split = collective is not Collective.ALL_REDUCE
    alone = Schedule(collective, "one rank", 1, 1, split, (Inter(collective),))
    program = Program(collective, (1, 1), [[0]], [0], ffi=VERSIONS[version], schedule=alone)
    assert run(handlers, program) == ""


def test_ids_that_are_not_ordinals(handlers: ctypes.CDLL) -> None:
    devices = [100, 102, 101, 103]
    program = Program(Collective.ALL_REDUCE, (4, 1), [[0, 1, 2, 3]], devices, "rec", first_id=100)
    assert run(handlers, program) == ""


def test_a_device_outside_of_the_groups(handlers: ctypes.CDLL) -> None:
    program = Program(Collective.ALL_REDUCE, (2, 1), [[0, 1]], [0, 1, 2], "ring")
    errors = run(handlers, program)
    assert "device 2 is in none of its groups" in errors
    assert errors.startswith("pccl_jax: collective over axis 'x'")


def test_too_little_scratch(handlers: ctypes.CDLL) -> None:
    program = Program(Collective.REDUCE_SCATTER, (4, 1), [[0, 1, 2, 3]], [0, 1, 2, 3], "ring")
    assert run(handlers, program) == ""
    assert "bytes of scratch, expected" in run(handlers, replace(program, missing_scratch=300))


def test_an_extension_older_than_we_know_is_not_used(handlers: ctypes.CDLL) -> None:
    before = handlers.fake_num_given()
    program = Program(Collective.ALL_GATHER, (2, 1), [[0, 1]], [0, 1], "ring", ffi=(5, 0))
    assert run(handlers, program) == ""
    assert handlers.fake_num_given() == before


@pytest.mark.parametrize("setting", ["mpi", "nccl,mpi"])
def test_mpi_that_is_not_there(
    handlers: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setenv("PCCL_GPU_TRANSPORT", setting)
    program = Program(Collective.ALL_GATHER, (2, 1), [[0, 1]], [0, 1], "ring")
    assert "start it with mpiexec" in run(handlers, program)


def test_unknown_transport(handlers: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCCL_GPU_TRANSPORT", "ucx")
    program = Program(Collective.ALL_GATHER, (2, 1), [[0, 1]], [0, 1], "ring")
    assert "got PCCL_GPU_TRANSPORT='ucx', expected auto, nccl, mpi" in run(handlers, program)


OURS = (3, NO_EXTENSION)


def test_a_communicator_that_could_not_be_made_is_not_tried_again(
    handlers: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its id would be that of the first attempt. The second ends at once, and says why."""
    program = Program(Collective.ALL_GATHER, (3, 1), [[0, 1, 2]], [10, 11, 12], "ring", ffi=OURS)
    monkeypatch.setenv("PCCL_TIMEOUT_S", "20")
    errors = run(handlers, replace(program, first_id=10, missing=2, again=True)).splitlines()
    assert len(errors) == 2
    assert all("an earlier collective of these devices has failed" in error for error in errors)
    assert all("start of a communicator" in error for error in errors)


@pytest.mark.parametrize("first", [True, False], ids=["first", "another"])
def test_a_member_that_does_not_come_ends_the_wait_for_it(
    handlers: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """The first of a communicator makes its id, for which the others wait."""
    monkeypatch.setenv("PCCL_TIMEOUT_S", "0.3")
    ids = [23, 21, 22] if first else [21, 22, 23]
    groups = [[2, 0, 1]] if first else [[0, 1, 2]]
    program = Program(Collective.ALL_GATHER, (3, 1), groups, ids, "ring", ffi=OURS)
    errors = run(handlers, replace(program, first_id=21, missing=2, hangs=True)).splitlines()
    assert len(errors) == 2
    said = "has not come within" if first else "has waited 0.3"
    assert all(said in error and "PCCL_TIMEOUT_S" in error for error in errors)


@pytest.mark.parametrize("whose", ["ours", "XLA's"])
def test_a_device_that_waits_for_ever_is_stopped(
    handlers: ctypes.CDLL,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    whose: str,
) -> None:
    """Communicators are there, and the last device does not come to the second run."""
    monkeypatch.setenv("PCCL_TIMEOUT_S", "0.5")
    first = 30 if whose == "ours" else 40
    ids = [first, first + 1, first + 2]
    program = Program(Collective.ALL_REDUCE, (3, 1), [[0, 1, 2]], ids, "rec")
    program.ffi = OURS if whose == "ours" else (5, 2)
    errors = run(handlers, replace(program, missing=1, hangs=True, again=True)).splitlines()
    told = capfd.readouterr().err
    for text in (*errors, told):
        assert "collective over axis 'x' by test, rank" in text
        assert "has waited 0.5" in text
        assert "raise PCCL_TIMEOUT_S" in text
    assert len(errors) == 2
    assert "Still waiting" in told
    assert told.count("The device is stopped") == 2


def test_an_error_of_a_communicator_stops_the_device(
    handlers: ctypes.CDLL, knobs: Knobs, capfd: pytest.CaptureFixture[str]
) -> None:
    knobs["nccl async error"] = 6
    program = Program(Collective.ALL_REDUCE, (2, 1), [[0, 1]], [50, 51], "rec", ffi=OURS)
    errors = run(handlers, replace(program, missing=1, hangs=True, again=True)).splitlines()
    assert len(errors) in (1, 2)  # the other device may be through
    assert all("NCCL reports fake error" in error for error in errors)
    assert "The device is stopped" in capfd.readouterr().err


@pytest.fixture
def mpi_program(knobs: Knobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one process, whose devices send messages to themselves."""
    knobs["mpi program"] = 1
    monkeypatch.setenv("PCCL_GPU_TRANSPORT", "mpi")


@pytest.mark.usefixtures("mpi_program")
@pytest.mark.parametrize("collective", Collective)
def test_programs_that_run_at_once_on_a_device_take_turns(
    handlers: ctypes.CDLL, collective: Collective
) -> None:
    ids = list(range(60, 64))
    program = Program(collective, (2, 2), [[0, 1, 2, 3]], ids, first_id=60, threads=3)
    assert run(handlers, program, 3001) == ""


@pytest.mark.usefixtures("mpi_program")
def test_messages_of_another_call_are_not_taken_for_ours(
    handlers: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PCCL_TIMEOUT_S", "0.3")
    program = Program(Collective.ALL_GATHER, (2, 1), [[0, 1]], [70, 71], "ring", first_id=70)
    assert run(handlers, program) == ""
    errors = run(handlers, replace(program, other_site=True)).splitlines()
    assert len(errors) == 2
    assert all("waited 0.3 s" in error and "in the same order" in error for error in errors)


@pytest.mark.usefixtures("mpi_program")
@pytest.mark.parametrize("collective", Collective)
def test_one_rank_over_mpi(handlers: ctypes.CDLL, collective: Collective) -> None:
    split = collective is not Collective.ALL_REDUCE
    alone = Schedule(collective, "one rank", 1, 1, split, (Inter(collective),))
    program = Program(collective, (1, 1), [[0]], [80], schedule=alone, first_id=80)
    assert run(handlers, program) == ""
