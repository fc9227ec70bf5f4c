"""What every case shares: settings, and reports to the test that has launched it."""

from __future__ import annotations

import contextlib
import json
import os
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_enable_x64", True)

#: Known before MPI or JAX have started.
RANK = next(
    (
        int(os.environ[name])
        for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
        if name in os.environ
    ),
    0,
)


def fork_from_launcher(processes: int, patience_s: float = 60) -> None:
    """Goes on in a child process; the parent hides its end until all have ended.

    Launchers end the whole job when a process is killed. This one's child may be.
    """
    child = os.fork()
    if child == 0:
        return
    begin = time.monotonic()
    _, status = os.waitpid(child, 0)
    report("ended", str(os.waitstatus_to_exitcode(status)), time.monotonic() - begin)
    folder = Path(os.environ["PCCL_TEST_FOLDER"])
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        texts = [file.read_text() for file in folder.glob("*.jsonl")]
        if sum('"step": "ended"' in text for text in texts) == processes:
            break
        time.sleep(0.1)
    os._exit(0)


def report(step: str, outcome: str = "ok", seconds: float = 0.0) -> None:
    """Tells the test what a step has come to."""
    line = json.dumps({"step": step, "outcome": outcome, "seconds": seconds})
    with (Path(os.environ["PCCL_TEST_FOLDER"]) / f"{RANK}.jsonl").open("a") as file:
        file.write(line + "\n")


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """Reports how the block ends, and how long it took; exceptions go no further."""
    begin = time.monotonic()
    try:
        yield
    except Exception as e:
        traceback.print_exc()
        report(name, f"{type(e).__name__}: {e}", time.monotonic() - begin)
    else:
        report(name, seconds=time.monotonic() - begin)


def per_rank(function: Callable[..., Any], mesh: Mesh) -> Callable[..., Any]:
    """``function`` on every rank: arguments and results have a first axis that counts ranks."""
    spec = P(mesh.axis_names)

    def body(*args: Any) -> Any:
        result = function(*jax.tree.map(lambda a: a.reshape(a.shape[1:]), args))
        return jax.tree.map(lambda leaf: leaf[None], result)

    body.__name__ = getattr(function, "__name__", "body")
    mapped = jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    return jax.jit(mapped)


def spread(rows: np.ndarray, mesh: Mesh) -> jax.Array:
    """An array whose row r is on the mesh's device r."""
    sharding = NamedSharding(mesh, P(mesh.axis_names))
    return jax.make_array_from_callback(rows.shape, sharding, lambda index: rows[index])


def assert_rows(actual: jax.Array, expected: Callable[[int], np.ndarray], what: str) -> None:
    """Row r of the result, where it is on a device of this process, is ``expected(r)``."""
    for shard in actual.addressable_shards:
        row = shard.index[0].start or 0
        ours, right = np.asarray(shard.data)[0], np.asarray(expected(row))
        assert ours.shape == right.shape, f"{what}: row {row}: {ours.shape}, not {right.shape}"
        wrong = np.flatnonzero((ours != right).ravel())
        assert wrong.size == 0, (
            f"{what}: row {row}: {wrong.size} of {right.size} elements are wrong, first at "
            f"{wrong[0]}: {ours.ravel()[wrong[0]]}, not {right.ravel()[wrong[0]]}"
        )
