"""One process is killed while the others wait for it, or while they exchange data."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import jax
import numpy as np
from _case import RANK, fork_from_launcher, per_rank, report, spread, step
from jax.sharding import Mesh

import pccl_jax

if __name__ == "__main__":
    victim, moment, processes = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    fork_from_launcher(processes)
    pccl_jax.init()
    n = len(jax.devices())
    mesh = Mesh(np.array(jax.devices()), ("x",))
    gather = per_rank(lambda x: pccl_jax.all_gather(x, "x"), mesh)
    reduce = per_rank(lambda x: pccl_jax.psum(x, "x"), mesh)
    rows = np.arange(n * 400_000, dtype=np.float32).reshape(n, -1) % 11

    def once(count: int) -> None:
        x = spread(rows[:, :count], mesh)
        for function, right in ((gather, rows[:, :count]), (reduce, rows[:, :count].sum(0))):
            for shard in jax.block_until_ready(function(x)).addressable_shards:
                assert (np.asarray(shard.data)[0] == right).all(), "wrong data"

    with step("warm up"):
        once(400_000)
        once(100)

    def die() -> None:
        time.sleep(0.2 if moment == "waiting" else 0.5)
        os.kill(os.getpid(), signal.SIGKILL)

    if victim == RANK:
        threading.Thread(target=die).start()
        if moment == "waiting":
            time.sleep(60)
    with step("last"):
        for _ in range(1 if moment == "waiting" else 10_000):
            once(100 if moment == "waiting" else 400_000)
    with step("usable"):
        assert float(jax.numpy.sum(jax.numpy.ones(3))) == 3
    report("end")
