"""The model that this program decides by: found, read and checked once.

``PCCL_MODEL`` names it: a path, or a name in the user's folder or among those that come with
pccl_jax; ``none`` is none. Unset, it is the file that tuning has written for this machine, if any.
What was named has to be right. What was merely found must not break a program: where it is wrong
there is one warning, and the program goes on without.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pccl_jax.dispatch.machine import configuration_folder, fingerprint, model_file
from pccl_jax.dispatch.model import LARGEST_FILE, Model, parse
from pccl_jax.errors import ConfigurationError

#: Models that come with pccl_jax, of machines that users may be on.
SHIPPED = Path(__file__).parent / "models"

_AGAIN = "Run `python -m pccl_jax tune` to write it anew"

_LOG = logging.getLogger("pccl_jax")
_lock = threading.Lock()


@dataclass(frozen=True)
class Learned:
    """A model in use, and its name for people."""

    model: Model
    name: str

    def __str__(self) -> str:
        source = "simulated" if self.model.simulated else "measured"
        return f"{self.name} ({source}, {self.model.digest})"


def learned() -> Learned | None:
    """The model in use, or None.

    Raises:
        ConfigurationError: where ``PCCL_MODEL`` names what does not exist or is wrong.
    """
    named = os.environ.get("PCCL_MODEL", "")
    if named == "none":
        return None
    with _lock:  # so that a warning comes once, whoever lowers programs at the same time
        return _named(named, configuration_folder()) if named else _found(model_file())


def describe() -> str:
    """The model in use, in words that are equal exactly where models choose alike.

    Raises:
        ConfigurationError: as :func:`learned`.
    """
    use = learned()
    return "no model" if use is None else f"model {use.model.digest}"


def read_model(path: Path) -> Model:
    """Reads and checks a file.

    Raises:
        ConfigurationError: where it cannot be read, is too large, or is not as it should be.
    """
    text = _text(path)
    try:
        return parse(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path} {error}") from error


def _text(path: Path) -> str:
    """No more of it than a model may have, and nothing that would have to be waited for."""
    try:
        if not path.is_file():
            raise ConfigurationError(f"{path} is not a file")
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise ConfigurationError(f"{path} has more than {LARGEST_FILE >> 20} MiB")
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error


@functools.cache
def _named(name: str, folder: Path) -> Learned:
    path = _path(name, folder)
    try:
        model = _of_this_machine(path)
    except ConfigurationError as error:
        raise ConfigurationError(f"PCCL_MODEL={name}: {error}. {_AGAIN}, or unset it.") from error
    return Learned(model, path.stem if name == path.stem else path.name)


def _path(name: str, folder: Path) -> Path:
    if os.sep in name or name.endswith(".json"):
        return Path(name)
    candidates = [folder / f"{name}.json", SHIPPED / f"{name}.json"]
    for path in candidates:
        if path.is_file():
            return path
    shipped = sorted(path.stem for path in SHIPPED.glob("*.json"))
    raise ConfigurationError(
        f"PCCL_MODEL={name}: there is neither {candidates[0]} nor a model of that name among "
        f"those of pccl_jax ({', '.join(shipped) or 'none'}); give a path, a name, or none."
    )


@functools.cache
def _found(path: Path) -> Learned | None:
    try:
        if not path.exists():
            return None
        model = _of_this_machine(path)
    except (ConfigurationError, OSError) as error:
        _LOG.warning("pccl_jax goes on without its learned model: %s. %s.", error, _AGAIN)
        return None
    return Learned(model, path.name)


def _of_this_machine(path: Path) -> Model:
    """A measured model holds for one machine; a simulated one has been named deliberately."""
    model, here = read_model(path), fingerprint()
    if not model.simulated and model.machine != here:
        raise ConfigurationError(
            f"{path} is of another machine: it has {_words(model.machine)}, this one {_words(here)}"
        )
    return model


def _words(machine: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in machine.items())
