"""A process of test_over_mpi: one rank, on the fake device, of every collective."""

from __future__ import annotations

import ctypes
import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from mpi4py import MPI

from gpu.group import MPI as STAGED
from gpu.group import Case, run_one_rank
from pccl_jax.schedule import build, names
from pccl_jax.types import Collective

ALGORITHMS = {collective: (*names(collective), "hier_nccl") for collective in Collective}

fake = ctypes.CDLL(sys.argv[1])
rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
faults = []
for collective, count in itertools.product(Collective, (5, 400_003)):
    for name in ALGORITHMS[collective]:
        schedule = build(name, collective, size // 2, 2)
        case = Case(schedule, count, "int32", transports=(STAGED, STAGED))
        error = run_one_rank(fake, case, MPI, rank)
        faults += [f"{name}: {error}"] if error else []
faults = [fault for part in MPI.COMM_WORLD.allgather(faults) for fault in part]
if rank == 0:
    print("\n".join(faults) or "all right", flush=True)
