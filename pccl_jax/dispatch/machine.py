"""What tells one machine from another, and where a user's files about them are."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path


@functools.cache
def fingerprint() -> Mapping[str, str | int]:
    """What has to be equal for times measured there to hold here: processor and cores.

    Example:
        >>> sorted(fingerprint())
        ['architecture', 'cores', 'cpu']
    """
    return {"cpu": _cpu(), "architecture": platform.machine(), "cores": os.cpu_count() or 1}


def short_name(machine: Mapping[str, object]) -> str:
    """Eight characters that stand for a machine, e.g. in the name of its file."""
    text = json.dumps(dict(machine), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def configuration_folder() -> Path:
    """``$PCCL_CONFIG_HOME``, else ``$XDG_CONFIG_HOME/pccl_jax``, else ``~/.config/pccl_jax``."""
    if own := os.environ.get("PCCL_CONFIG_HOME"):
        return Path(own)
    if shared := os.environ.get("XDG_CONFIG_HOME"):
        return Path(shared) / "pccl_jax"
    return Path(os.path.expanduser("~")) / ".config" / "pccl_jax"


def model_file(machine: Mapping[str, object] | None = None) -> Path:
    """Where the model of a machine, by default this one, is written and looked for."""
    return _file("model", machine)


def machine_file(machine: Mapping[str, object] | None = None) -> Path:
    """Where the cost model's figures of a machine, by default this one, are."""
    return _file("machine", machine)


def bench_file(machine: Mapping[str, object] | None = None) -> Path:
    """Where tuning keeps what it has measured on a machine, by default this one."""
    return _file("bench", machine)


def _file(kind: str, machine: Mapping[str, object] | None) -> Path:
    return configuration_folder() / f"{kind}-{short_name(machine or fingerprint())}.json"


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    models = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return models[0] if models else platform.processor() or platform.machine()
