"""What the processes must agree on: they go on alike, or all of them raise."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

from pccl_jax import dispatch
from pccl_jax.errors import ConfigurationError

#: Settings that change what is sent, or how it is cut.
_ALIKE = (
    *("PCCL_ALGORITHM", "PCCL_CHECK", "PCCL_CMA_MIB", "PCCL_GPU_TRANSPORT"),
    *("PCCL_RANKS_PER_NODE", "PCCL_SHM_MIB"),
)


def check_alike(comm: Any) -> None:
    """Everything that decides which messages are sent has to be equal in all processes."""
    for name in _ALIKE:
        values = comm.allgather(os.environ.get(name))
        if len(set(values)) > 1:
            told = ", ".join(f"{value!r} in process {rank}" for rank, value in enumerate(values))
            raise ConfigurationError(f"{name} must be equal in all processes, but it is {told}")
    _check_choices(comm)


def _check_choices(comm: Any) -> None:
    """Who decides by other figures may choose another algorithm, and send other messages."""
    policies = comm.allgather((attempt(comm, dispatch.describe), socket.gethostname()))
    said = dict.fromkeys(policy for policy, _ in policies)
    if len(said) == 1:
        return
    told = []
    for policy in said:
        ranks = [f"process {r} ({host})" for r, (p, host) in enumerate(policies) if p == policy]
        more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
        told.append(f"{policy} in {', '.join(ranks[:8])}{more}")
    raise ConfigurationError(
        f"the processes decide by different figures: {'; '.join(told)}. Give all of them the "
        "same model and machine (PCCL_MODEL=FILE, PCCL_MACHINE=FILE), or none (PCCL_MODEL=none)."
    )


def attempt(comm: Any, action: Callable[[], Any]) -> Any:
    """Runs an action that may fail in some of the processes; then it fails in all."""
    result, wrong = None, None
    try:
        result = action()
    except Exception as e:  # whatever it is, the others must not wait for us
        wrong = str(e)
    all_or_none(comm, wrong)
    return result


def all_or_none(comm: Any, wrong: str | None) -> None:
    """Raises in every process where something is wrong in any."""
    faults = [(rank, text) for rank, text in enumerate(comm.allgather(wrong)) if text]
    if faults:
        raise ConfigurationError("; ".join(f"process {rank}: {text}" for rank, text in faults))
