"""The bits: the same on all ranks and in every run, half precision, special values, size."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from meshes import algorithms, mesh_of, per_rank

import pccl_jax

OURS = [name for name in algorithms("all_reduce") if name != "xla"]
FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64")


def bits(x: Any) -> np.ndarray:
    x = np.ascontiguousarray(x)
    return x.view(np.uint8).reshape(*x.shape, x.itemsize)


def random(ranks: int, size: int, dtype: str) -> np.ndarray:
    x = np.random.default_rng(0).standard_normal((ranks, size)) * 10
    return x.astype(jnp.dtype(dtype))


@pytest.mark.parametrize("algorithm", OURS)
@pytest.mark.parametrize(("ranks", "per_node"), [(8, 2), (7, 1), (15, 4), (6, None)])
def test_bits_agree_on_all_ranks_and_in_all_runs(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, ranks: int, per_node: int | None
) -> None:
    if per_node:
        monkeypatch.setenv("PCCL_RANKS_PER_NODE", str(per_node))
    inputs = [random(ranks, 1003, dtype) for dtype in FLOATS] + [random(ranks, 70_001, "float32")]

    def program(xs: list[jax.Array]) -> Any:
        return [
            pccl_jax.all_reduce(x, "x", op=op, algorithm=algorithm)
            for x in xs
            for op in ("sum", "prod")
        ]

    f = per_rank(program, mesh_of(ranks))
    first = [bits(r) for r in f(inputs)]
    for result in first:
        np.testing.assert_array_equal(result, np.broadcast_to(result[:1], result.shape))
    for _ in range(5):
        for result, again in zip(first, f(inputs), strict=True):
            np.testing.assert_array_equal(result, bits(again))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_summed_in_single(dtype: str) -> None:
    """1 + 8 times eps/4: each addend alone is lost in half precision, their sum is not."""
    eps = float(jnp.finfo(dtype).eps)
    x = np.array([[1.0]] + [[eps / 4]] * 8).astype(jnp.dtype(dtype))
    mesh = mesh_of(len(x))
    total = per_rank(lambda x: pccl_jax.psum(x, "x", algorithm="hier_rec"), mesh)(x)
    np.testing.assert_array_equal(np.asarray(total, np.float64), 1 + 2 * eps)
    wide = np.repeat(x, len(x), axis=1)
    part = per_rank(lambda x: pccl_jax.psum_scatter(x, "x", algorithm="hier_rec"), mesh)(wide)
    np.testing.assert_array_equal(np.asarray(part, np.float64), 1 + 2 * eps)


@pytest.mark.parametrize("algorithm", OURS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_special_values(dtype: str, algorithm: str) -> None:
    """NaN wins everywhere (in XLA's own all-reduce on CPU it may lose)."""
    specials = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0]
    x = np.array([[a for a in specials for b in specials], [b for a in specials for b in specials]])
    x = np.tile(x, (1, 3)).astype(jnp.dtype(dtype))

    def program(lib: Any, x: Any, **kw: Any) -> Any:
        return lib.psum(x, "x", **kw), lib.pmax(x, "x", **kw), lib.pmin(x, "x", **kw)

    ours = per_rank(lambda x: program(pccl_jax, x, algorithm=algorithm), mesh_of(2))(x)
    with np.errstate(invalid="ignore"):
        expected = x[0] + x[1], np.maximum(x[0], x[1]), np.minimum(x[0], x[1])
    for result, right in zip(ours, expected, strict=True):
        assert result.dtype == right.dtype
        np.testing.assert_array_equal(
            np.asarray(result, np.float64), np.stack([right] * 2).astype(np.float64)
        )
    total = np.asarray(ours[0]).astype(np.float64)
    is_zero = total == 0
    negative = np.signbit(x[0].astype(np.float64)) & np.signbit(x[1].astype(np.float64))
    np.testing.assert_array_equal(np.signbit(total) & is_zero, negative & is_zero)


@pytest.mark.parametrize("algorithm", algorithms("all_gather"))
def test_gathered_bits_are_untouched(algorithm: str) -> None:
    """Payloads of NaNs and the sign of zero survive."""
    raw = np.random.default_rng(1).integers(0, 2**32, (4, 33), dtype=np.uint32)
    raw[:, :4] = [0x7F800001, 0xFFC12345, 0x80000000, 0x7FC00000]
    f = per_rank(lambda x: pccl_jax.all_gather(x, "x", algorithm=algorithm), mesh_of(4))
    result = np.asarray(f(raw.view(np.float32))).view(np.uint32)
    np.testing.assert_array_equal(result, np.stack([raw] * 4))


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float8_e4m3fn", "float8_e5m2"])
def test_types_without_kernels_go_to_lax(dtype: str) -> None:
    x = np.arange(12).reshape(4, 3) % 5
    x = jnp.asarray(x, dtype)

    def program(lib: Any, x: Any) -> Any:
        return lib.all_gather(x, "x"), lib.all_gather(x, "x", tiled=True), lib.pmax(x, "x")

    ours, theirs = (
        per_rank(lambda x, lib=lib: program(lib, x), mesh_of(4))(x) for lib in (pccl_jax, lax)
    )
    for mine, right in zip(ours, theirs, strict=True):
        assert mine.dtype == right.dtype
        np.testing.assert_array_equal(np.asarray(mine, np.float32), np.asarray(right, np.float32))


@pytest.mark.timeout(240)
def test_more_than_2_to_the_31_bytes() -> None:
    half = 2**30 + 4096 + 3
    places = np.array([0, 1, 4095, half // 2, half - 1])

    def program(seed: jax.Array) -> Any:
        mine = jnp.full((half,), 1, jnp.int8) * (seed[0] + 1)
        both = pccl_jax.all_gather(mine, "x", tiled=True)
        return both[jnp.concatenate([places, places + half, jnp.array([2 * half - 1])])][None]

    mesh = mesh_of(2)
    f = jax.jit(
        jax.shard_map(program, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
    )
    result = np.asarray(f(np.arange(2, dtype=np.int8)))
    np.testing.assert_array_equal(result, [[1] * len(places) + [2] * (len(places) + 1)] * 2)
    jax.clear_caches()
