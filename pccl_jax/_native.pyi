"""The compiled part of pccl_jax: XLA FFI handlers and what they run on."""

from typing import Any

def cpu_handlers() -> dict[str, Any]:
    """The stages of the FFI target for jax.ffi.register_ffi_target."""

def cpu_state_type() -> dict[str, Any]:
    """The type of the target's state for jax.ffi.register_ffi_type."""

def ffi_api_version() -> tuple[int, int]:
    """Version (major, minor) of the XLA FFI headers this module was compiled with."""

def create_segment(name: str, nbytes: int) -> None:
    """Creates this process's shared memory, of about nbytes bytes."""

def unlink_segment(name: str) -> None:
    """Removes a segment's name; those who have mapped it keep it."""

def join_world(
    process: int,
    host_of: list[int],
    mpi_rank: list[int],
    mpi4py_file: str,
    any_source: int,
    comm: int,
    comm_self: int,
    largest_tag: int,
    segments: dict[int, str],
    types: dict[int, int] = ...,
    ops: dict[int, int] = ...,
) -> str:
    """Connects this process to the others; returns the name of the MPI library."""

def leave(reason: str) -> None:
    """To be called when the program ends, with the exception that ends it or an empty text."""
