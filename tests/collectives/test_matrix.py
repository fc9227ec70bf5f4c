"""Every collective, operator, dtype and algorithm on every kind of group, bit for bit."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest
from meshes import algorithms, assert_same, mesh_of, per_rank

from .cases import DTYPES, Case, of_every_geometry, of_every_kernel, operators

RANKS = (1, 2, 3, 4, 7, 8, 15, 16)
PER_NODE = (None, 1, 2, 4)
ALGORITHMS = algorithms()

GROUPS = [(n, per) for n in RANKS for per in PER_NODE if per is None or per < n]
SETTINGS = [
    (n, per, algorithm)
    for n, per in GROUPS
    for algorithm in (*ALGORITHMS, None)
    if per is None or algorithm not in ("xla", None)  # xla knows no nodes
]


def set_ranks_per_node(monkeypatch: pytest.MonkeyPatch, per_node: int | None) -> None:
    if per_node is not None:
        monkeypatch.setenv("PCCL_RANKS_PER_NODE", str(per_node))


def check(cases: list[Case], ranks: int, algorithm: str | None) -> None:
    """Runs all cases in one program, each by ``algorithm`` where it has the collective."""
    inputs = [case.inputs(ranks) for case in cases]

    def program(operands: list[jax.Array]) -> list[jax.Array]:
        return [
            case.call(x, algorithm=name_for(case, algorithm))
            for case, x in zip(cases, operands, strict=True)
        ]

    results = per_rank(program, mesh_of(ranks))(inputs)
    for case, x, result in zip(cases, inputs, results, strict=True):
        try:
            assert_same(result, case.expected(x))
        except AssertionError as error:
            raise AssertionError(f"{case} on {ranks} ranks: {error}") from None


def name_for(case: Case, algorithm: str | None) -> str | None:
    return algorithm if algorithm in algorithms(case.collective) else None


@pytest.mark.parametrize(("ranks", "per_node", "algorithm"), SETTINGS)
def test_every_geometry(
    monkeypatch: pytest.MonkeyPatch, ranks: int, per_node: int | None, algorithm: str | None
) -> None:
    set_ranks_per_node(monkeypatch, per_node)
    seed = SETTINGS.index((ranks, per_node, algorithm))
    check(of_every_geometry(ranks, seed), ranks, algorithm)


@pytest.mark.parametrize(
    ("ranks", "per_node", "algorithm"),
    [
        (ranks, per, algorithm)
        for ranks, per in [(4, None), (4, 2), (6, 2), (3, 1)]
        for algorithm in ALGORITHMS
        if per is None or algorithm != "xla"
    ],
)
def test_every_kernel(
    monkeypatch: pytest.MonkeyPatch, ranks: int, per_node: int | None, algorithm: str
) -> None:
    set_ranks_per_node(monkeypatch, per_node)
    check(of_every_kernel(ranks, ranks + (per_node or 0)), ranks, algorithm)


@pytest.mark.parametrize("ranks", RANKS)
def test_numpy_reference_is_what_lax_computes(ranks: int) -> None:
    cases = [c for c in of_every_geometry(ranks, ranks) if 0 < np.prod(c.shape) < 10_000]
    if ranks == 4:
        cases += of_every_kernel(ranks, 0)
    mesh = mesh_of(ranks)
    inputs = [case.inputs(ranks) for case in cases]

    @functools.partial(per_rank, mesh=mesh)
    def program(operands: list[jax.Array]) -> list[jax.Array | None]:
        return [case.call_lax(x) for case, x in zip(cases, operands, strict=True)]

    for case, x, result in zip(cases, inputs, program(inputs), strict=True):
        if result is not None:
            try:
                assert_same(result, case.expected(x))
            except AssertionError as error:
                raise AssertionError(f"{case} on {ranks} ranks: {error}") from None


def test_the_matrix_is_complete() -> None:
    """Each dtype meets each operator in each reduction, and each dtype is gathered."""
    lists = [of_every_kernel(4, 0), *(of_every_geometry(4, seed) for seed in range(30))]
    seen = {(c.collective, c.dtype, c.op) for cases in lists for c in cases}
    for dtype in DTYPES:
        assert ("all_gather", dtype, "sum") in seen
        for op in operators(dtype):
            assert ("all_reduce", dtype, op) in seen
            assert ("reduce_scatter", dtype, op) in seen
