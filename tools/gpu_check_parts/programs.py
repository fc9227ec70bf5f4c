"""Collectives inside jitted programs on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pccl_jax
from gpu_check_parts.module import gpu_module, gpu_platform
from pccl_jax import schedule
from pccl_jax.types import Collective

Row = tuple[str, str, str]


def one_rank() -> Iterator[Row]:
    """NCCL's collectives among one device: the whole way from the program to NCCL and back."""
    yield from _one_rank("pccl_check", recorded=False)


def recorded() -> Iterator[Row]:
    """The same in CUDA graphs, which the environment has XLA record."""
    yield from _one_rank("pccl_check_recorded", recorded=True)


def _one_rank(target: str, recorded: bool) -> Iterator[Row]:
    from pccl_jax.runtime.gpu_world import join_gpus

    module, platform = gpu_module(), gpu_platform().upper()
    join_gpus(module)
    jax.ffi.register_ffi_type(f"{target}_state", module.state_type(), platform=platform)
    jax.ffi.register_ffi_target(target, module.handlers(recorded=recorded), platform=platform)
    found, text = module.nccl_version()
    yield "NCCL", "ok" if found else "FAILED", text
    x = jnp.arange(1003, dtype=jnp.float32)
    for collective in Collective:
        split = collective is not Collective.ALL_REDUCE
        phases = (schedule.Inter(collective),)
        alone = schedule.Schedule(collective, "one rank", 1, 1, split, phases)
        call = partial(_call, target, collective, schedule.encode(alone))
        f = jax.jit(lambda x, call=call: call(x * 2) + 1)
        same = all((np.asarray(f(x + i)) == np.asarray((x + i) * 2 + 1)).all() for i in range(5))
        kind = "in a CUDA graph" if recorded else "on the stream"
        yield f"{collective.label} of one rank {kind}", "ok" if same else "FAILED", ""
    if recorded:
        calls = module.num_recorded()
        yield "calls recorded in CUDA graphs", "ok" if calls else "FAILED", str(calls)


def _call(target: str, collective: int, program: np.ndarray, x: jax.Array) -> jax.Array:
    zero = np.zeros(1, np.int64)
    types = [jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct((4096,), jnp.uint8)]
    out: jax.Array = jax.ffi.ffi_call(target, types)(
        x,
        collective=np.int64(collective),
        op=np.int64(0),
        program=program,
        members=zero,
        places=zero,
        processes=zero,
        rows=np.int64(1),
        label=f"check of one rank, collective {int(collective)}",
        algorithm="one rank",
        site=np.int64(collective),
        devices=np.array([jax.devices()[0].id], np.int64),
    )[0]
    return out


def many_ranks() -> Iterator[Row]:
    """Several processes on one GPU, through MPI: NCCL would refuse to."""
    from pccl_jax.runtime.gpu_world import join_gpus

    pccl_jax.init(local_device_ids=[0])
    devices = jax.devices()
    if any(device.platform != "gpu" for device in devices):
        yield "ranks on one GPU", "FAILED", f"expected a GPU in each process, got {devices}"
        return
    transport = join_gpus(gpu_module())
    if jax.process_index() == 0:
        yield "ranks on one GPU", "ok", f"{len(devices)} processes, {transport}"
    for name, state, detail in every_algorithm(devices):
        if jax.process_index() == 0 or state != "ok":
            yield name, state, detail


def every_algorithm(
    devices: Sequence[Any],
    counts: Sequence[int] = (1, 1000, 300_001),
    dtypes: Sequence[str] = ("float32", "int32", "bfloat16"),
) -> Iterator[Row]:
    """Every collective by every algorithm on ``devices``, against numpy."""
    mesh = jax.sharding.Mesh(np.array(devices), ("x",))
    for collective, call in _calls().items():
        for name in schedule.names(Collective[collective.upper()]):
            faults = [
                fault
                for dtype in dtypes
                for count in counts
                if (fault := _compare(mesh, call, name, collective, dtype, count))
            ]
            yield f"{collective} by {name}", "FAILED" if faults else "ok", "; ".join(faults)


def _calls() -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """By collective: ours, and what it should give, from the parts that the ranks put in."""
    return {
        "all_gather": (partial(pccl_jax.all_gather, tiled=True), np.concatenate),
        "reduce_scatter": (partial(pccl_jax.psum_scatter, tiled=True), _sum),
        "all_reduce": (pccl_jax.psum, _sum),
    }


def _sum(parts: list[np.ndarray]) -> np.ndarray:
    return np.sum([p.astype(np.float64) for p in parts], axis=0)


def _compare(
    mesh: Any, call: Any, algorithm: str, collective: str, dtype: str, count: int
) -> str | None:
    """What is wrong, or None. Sums are exact in every type and order."""
    ours, host = call
    n = mesh.size
    length = count * n if collective == "reduce_scatter" else count
    rng = np.random.default_rng(count)
    parts = [rng.integers(-4, 4, length).astype(dtype) for _ in range(n)]
    sharding = NamedSharding(mesh, P("x"))
    whole = np.concatenate(parts)
    x = jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])
    f = jax.jit(
        jax.shard_map(
            lambda x: ours(x, "x", algorithm=algorithm),
            mesh=mesh,
            in_specs=P("x"),
            out_specs=P("x"),
            check_vma=False,
        )
    )
    pccl_jax.choices(clear=True)
    got = f(x)
    used = [choice.algorithm for choice in pccl_jax.choices()]
    if used != [algorithm]:
        return f"not run: {pccl_jax.choices()}"
    want = np.asarray(host(parts))
    for shard in got.addressable_shards:
        rank = (shard.index[0].start or 0) // shard.data.shape[0]
        expected = want.reshape(n, -1)[rank] if collective == "reduce_scatter" else want
        if not (np.asarray(shard.data).astype(np.float64) == expected).all():
            return f"wrong: {dtype}[{count}] on rank {rank}"
    return None
