"""What the launcher (mpiexec, srun) says in the environment, and the network cards. No MPI."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path

#: The number of processes as the launchers name it: Open MPI, MPICH and Intel MPI (and Slurm with
#: --mpi=pmi2), Slurm's srun.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
_SRUN = _SIZES[-1]

#: The number of this process among those of its host, likewise.
_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")

#: Which card the common MPI transports use, set before MPI starts.
_CARD_VARIABLES = ("UCX_NET_DEVICES", "FI_TCP_IFACE", "OMPI_MCA_btl_tcp_if_include")


@dataclass(frozen=True)
class Launch:
    """How this process was started, with ``variable`` the one that says so."""

    processes: int
    local_rank: int
    variable: str

    @property
    def by_srun_alone(self) -> bool:
        """Whether srun started it, and no MPI launcher or ``--mpi`` of srun says so."""
        return self.variable == _SRUN


def find_launch(environ: MutableMapping[str, str]) -> Launch | None:
    """The launcher's word, or None where the process was started alone."""
    local_ranks = [int(environ[name]) for name in _LOCAL_RANKS if environ.get(name, "").isdigit()]
    for size in _SIZES:
        if environ.get(size, "").isdigit():
            return Launch(int(environ[size]), local_ranks[0] if local_ranks else 0, size)
    return None


def network_cards() -> tuple[str, ...]:
    """Names of this host's network interfaces that are up, without loopback."""
    root = Path("/sys/class/net")
    if not root.is_dir():
        return ()
    cards = []
    for card in sorted(root.iterdir()):
        state = card / "operstate"
        try:
            up = state.read_text().strip() in ("up", "unknown")
        except OSError:
            continue
        if up and card.name != "lo":
            cards.append(card.name)
    return tuple(cards)


def choose_card(environ: MutableMapping[str, str], local_rank: int) -> str | None:
    """Gives each local rank a card of its own, where ``PCCL_NICS`` lists cards.

    ``PCCL_NICS=eth0,eth1``: local rank r uses card r mod 2. A variable of the MPI library that
    is set already is left alone. Must run before MPI starts.

    Returns:
        The card, or None where ``PCCL_NICS`` is not set.
    """
    cards = [card.strip() for card in environ.get("PCCL_NICS", "").split(",") if card.strip()]
    if not cards:
        return None
    card = cards[local_rank % len(cards)]
    for variable in _CARD_VARIABLES:
        environ.setdefault(variable, card)
    return card


def default_environment() -> MutableMapping[str, str]:
    """The process's own."""
    return os.environ
