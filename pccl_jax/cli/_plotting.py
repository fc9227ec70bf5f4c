"""matplotlib, where it is installed: only plots need it."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from pccl_jax.errors import ConfigurationError

#: What matplotlib writes by the end of a file's name.
_KINDS = (".png", ".pdf", ".svg")


def plot_file(text: str) -> Path:
    """The type of an option that names a picture."""
    path = Path(text)
    if path.suffix.lower() not in _KINDS:
        raise argparse.ArgumentTypeError(f"{text!r} does not end in one of {', '.join(_KINDS)}")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a file in a folder that exists")
    return path


def pyplot() -> Any:
    """``matplotlib.pyplot``, drawing into files alone.

    Raises:
        ConfigurationError: where matplotlib is not installed.
    """
    try:
        importlib.import_module("matplotlib").use("agg")
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ConfigurationError(
            f"a plot needs matplotlib ({error}): pip install 'pccl_jax[plot]'"
        ) from error
