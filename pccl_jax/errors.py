"""The exceptions pccl_jax raises: the caller can act on the first two, the last is a bug."""

from __future__ import annotations


class PcclError(Exception):
    """Base class of every exception of pccl_jax's own."""


class ConfigurationError(PcclError, ValueError):
    """A setting, an argument or the set-up is wrong; the message says what to change."""


class ScheduleError(PcclError, ValueError):
    """A schedule does not implement its collective; the message names the rank and the chunk."""


class InternalError(PcclError, RuntimeError):
    """An invariant of pccl_jax does not hold. Please report it."""
