"""Memory of a process: what it shares with those of its host, and what it keeps for its outputs."""

from __future__ import annotations

import os
import secrets
from typing import Any

from pccl_jax.errors import ConfigurationError
from pccl_jax.runtime.agreement import all_or_none
from pccl_jax.runtime.native import extension

#: Shared memory of each process. Larger pieces mean fewer waits for processes that share a core;
#: measured with 4 on 2 cores, 16 MiB made a 64 MiB all-gather twice as slow.
_SHARED_MIB = 32

_KEPT_MIB = 1024

#: With these users tell the C library themselves.
_ALLOCATOR_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> None:
    """Has the process keep what it frees, up to ``PCCL_KEEP_MIB``, for the outputs to come.

    XLA allocates the output of a collective anew each time. From the kernel, that is a page fault
    and zeroing for each of its pages, which can take longer than the collective. Outputs of more
    than 32 MiB are the kernel's in any case.

    Raises:
        ConfigurationError: if the setting is no number.
    """
    mib = _mib("PCCL_KEEP_MIB", _KEPT_MIB, least=0)
    if mib and not any(name in os.environ for name in _ALLOCATOR_SETTINGS):
        extension().keep_freed_memory(mib << 20)


def share_memory(comm: Any, here: Any, process: int) -> dict[int, str]:
    """Creates this process's segment; returns the names of all segments of the host.

    The names vanish as soon as everybody has mapped the segments, so nothing is left behind.

    Raises:
        ConfigurationError: in every process, where one of them has no memory to share.
    """
    mib = _mib("PCCL_SHM_MIB", _SHARED_MIB, least=1)
    if here.Get_size() == 1:
        all_or_none(comm, None)  # as the other hosts do
        return {}
    name = f"/pccl_jax-{os.getpid()}-{secrets.token_hex(8)}"
    wrong = _create(name, mib)
    # Containers often have 64 MiB of shared memory in all: make do with less, all alike.
    while mib > 1 and any(here.allgather(wrong)):
        mib //= 2
        wrong = _create(name, mib)
    all_or_none(comm, wrong)
    return dict(here.allgather((process, name)))


def _mib(variable: str, otherwise: int, *, least: int) -> int:
    text = os.environ.get(variable, str(otherwise))
    if not text.isdigit() or int(text) < least:
        raise ConfigurationError(f"{variable}={text!r} is not a number of MiB from {least} up")
    return int(text)


def _create(name: str, mib: int) -> str | None:
    """Creates the segment in place of an earlier one; returns what is wrong, if anything."""
    native = extension()
    native.unlink_segment(name)
    try:
        native.create_segment(name, mib << 20)
    except RuntimeError as e:
        return str(e)
    return None
