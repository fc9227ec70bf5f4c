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

#: The most that glibc takes is one less than 2 GiB.
_KEPT_MIB, _MOST_KEPT_MIB = 1024, 2047

_USERS_OWN = (
    *("MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_"),
    *("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_"),
)


def keep_freed_memory() -> None:
    """Has the process keep what it frees for the outputs to come.

    XLA allocates the output of a collective anew each time. From the kernel, that is a page fault
    and zeroing for each of its pages, which can take longer than the collective. What is free at
    the top of the heap is given back from ``PCCL_KEEP_MIB`` on; what is free below arrays in use
    stays, as it always does. Outputs of 32 MiB and more are the kernel's in any case.

    Raises:
        ConfigurationError: if the setting is no such number.
    """
    mib = _mib("PCCL_KEEP_MIB", _KEPT_MIB, least=0, most=_MOST_KEPT_MIB)
    if mib and not _told_by_user():
        extension().keep_freed_memory(mib << 20)


def _told_by_user() -> bool:
    """Whether the environment says what the allocator is to keep."""
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    return "glibc.malloc" in tunables or any(name in os.environ for name in _USERS_OWN)


def share_memory(comm: Any, here: Any, process: int) -> dict[int, str]:
    """Creates this process's segment; returns the names of all segments of the host.

    The names vanish as soon as everybody has mapped the segments, so nothing is left behind.

    Raises:
        ConfigurationError: in every process, where one of them has no memory to share.
    """
    _mib("PCCL_CMA_MIB", 0, least=0)  # only checked: it is the extension that reads it
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


def _mib(variable: str, otherwise: int, *, least: int, most: int = 1 << 20) -> int:
    text = os.environ.get(variable, str(otherwise))
    if not text.isdigit() or not least <= int(text) <= most:
        wanted = f"a number of MiB from {least} to {most}"
        raise ConfigurationError(f"{variable}={text!r} is not {wanted}")
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
