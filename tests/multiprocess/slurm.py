"""Slurm over emulated hosts: its daemons, one per host and one for all, as long as a test lasts."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hosts import HEAD, Hosts, Unavailable

_NEEDED = ("slurmctld", "slurmd", "srun", "sbatch", "sinfo", "munged")

_START_S = 60.0

_SETTINGS = """
ClusterName=emulated
SlurmctldHost={head}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName={names} CPUs=4 RealMemory=1000
PartitionName=main Nodes={names} Default=YES State=UP
"""


_BATCH = """
job=$(sbatch --parsable --output="$1" "$2")
while [ -n "$(squeue --noheader --jobs="$job")" ]; do sleep 0.2; done
scontrol show job "$job" | grep -q ' ExitCode=0:0'
"""


class Cluster:
    """Hosts that take jobs; commands run on the one that is no compute node."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self.hosts = hosts
        self.folder = folder
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}

    def on(self, name: str, *command: str) -> list[str]:
        """The words of a command that runs on a host."""
        return [*self.hosts.enter(name), *command]

    def configure(self) -> None:
        """All that the daemons read. No cgroups, which the hosts have not."""
        names = ",".join(self.hosts.names)
        text = _SETTINGS.format(head=HEAD, folder=self.folder, names=names)
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        # Every host has a /dev/shm of its own, and one /tmp with all others.
        (self.folder / "mpi.conf").write_text("PMIxCliTmpDirBase=/dev/shm\n")
        for name in ("state", *self.hosts.names):
            (self.folder / name).mkdir()
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o600)

    def daemons(self) -> Iterator[list[str]]:
        """The commands that start them."""
        munge = self.folder / "munge"
        files = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={munge}.{suffix}" for option, suffix in files.items()]
        yield ["munged", "--foreground", "--force", f"--key-file={munge}.key", *options]
        _await(Path(f"{munge}.socket").exists, "munged")  # which slurmctld does not wait for
        settings = self.environment["SLURM_CONF"]
        yield self.on(HEAD, "slurmctld", "-D", "-f", settings)
        for name in self.hosts.names:
            yield self.on(name, "slurmd", "-D", "-f", settings, "-N", name)

    def is_idle(self) -> bool:
        """Whether every host waits for jobs."""
        states = self.ask("sinfo", "--noheader", "--Node", "--format=%t").stdout.split()
        return states == ["idle"] * len(self.hosts.names)

    def batch(self, script: Path, output: Path) -> list[str]:
        """The command that runs a batch script and ends as it does, sooner than ``--wait`` sees."""
        return self.on(HEAD, "bash", "-euc", _BATCH, "batch", str(output), str(script))

    def ask(self, *command: str) -> subprocess.CompletedProcess[str]:
        """What a command of Slurm's says."""
        return subprocess.run(
            self.on(HEAD, *command),
            env=os.environ | self.environment,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip


@contextlib.contextmanager
def slurm_cluster(hosts: Hosts, folder: Path) -> Iterator[Cluster]:
    """Slurm that is gone afterwards.

    Raises:
        Unavailable: where it is not installed, or does not come up.
    """
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    if missing:
        raise Unavailable(f"not installed: {', '.join(missing)}")
    cluster = Cluster(hosts, folder)
    cluster.configure()
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((folder / "daemons.log").open("w"))
        for command in cluster.daemons():
            daemon = subprocess.Popen(
                command,
                env=os.environ | cluster.environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
            stack.callback(_end, daemon)
        _await(cluster.is_idle, "Slurm")
        yield cluster


def _await(happens: Callable[[], bool], who: str) -> None:
    until = time.monotonic() + _START_S
    while not happens():
        if time.monotonic() > until:
            raise Unavailable(f"{who} does not come up in {_START_S:g} s")
        time.sleep(0.2)


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(10)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
