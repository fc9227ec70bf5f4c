"""Several hosts on one machine: Linux namespaces, each with its name, network and /dev/shm.

Where root may make them (Linux with iproute2 and util-linux); MPI between them takes TCP.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

#: The launcher's namespace, and the network card that every host has.
HEAD, CARD = "head", "lan"

#: Which card the MPI libraries of the PyPI packages take, and how they talk within a host.
TRANSPORT = {
    "UCX_TLS": "tcp,self,sysv",
    "UCX_NET_DEVICES": CARD,
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,sm,tcp",
    "OMPI_MCA_btl_tcp_if_include": CARD,
}

_LIFE_S = 900  # of a namespace that nobody ends

_REMOTE_SHELL = """#!/bin/bash
# A remote shell as launchers call it: [options] HOST COMMAND...
while [ "${{1#-}}" != "$1" ]; do shift; done
host=${{1%%:*}}; shift
cd {folder}
exec nsenter --target "$(cat $host.pid)" --net --uts --ipc --mount -- /bin/bash -c "$*"
"""


class Unavailable(Exception):
    """This machine gives no namespaces; the text says why."""


class Hosts:
    """``count`` hosts; ``names`` are those that MPI launchers take."""

    def __init__(self, count: int, folder: Path) -> None:
        self.folder = folder
        self.names = [f"host{i}" for i in range(count)]
        self.remote_shell = folder / "remote-shell"

    def launcher(self, mpiexec: Path, per_host: int, open_mpi: bool) -> list[str]:
        """The words before the program that start ``per_host`` processes on each host."""
        slots = ",".join(f"{name}:{per_host}" for name in self.names)
        count = ["-n", str(per_host * len(self.names))]
        if open_mpi:
            network = [
                "--prtemca",
                "prte_if_include",
                CARD,
                "--pmixmca",
                "ptl_tcp_if_include",
                CARD,
            ]
            shell = ["--prtemca", "plm_ssh_agent", str(self.remote_shell)]
            where = ["--map-by", f"ppr:{per_host}:node:oversubscribe", "--host", slots]
            options = [*shell, *network, "--prtemca", "prte_silence_shared_fs", "1", *where]
        else:
            shell = ["-launcher", "ssh", "-launcher-exec", str(self.remote_shell)]
            options = [*shell, "-iface", CARD, "-hosts", slots]
        return [*self.enter(HEAD), str(mpiexec), *options, *count]

    def enter(self, name: str) -> list[str]:
        """The words before a command that run it on a host."""
        return ["nsenter", "--target", self._pid(name), "--net", "--uts", "--ipc", "--mount", "--"]

    def _pid(self, name: str) -> str:
        return (self.folder / f"{name}.pid").read_text()

    def run(self, name: str, command: str) -> None:
        """Runs a shell command on a host.

        Raises:
            Unavailable: if it fails.
        """
        done = subprocess.run(
            [*self.enter(name), "sh", "-ec", command],
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        if done.returncode:
            raise Unavailable(f"{command!r}: {done.stderr.strip()}")

    def connect(self) -> None:
        """Names, /dev/shm, /sys and addresses; every host is wired to the launcher's bridge."""
        table = ["127.0.0.1 localhost", f"10.78.0.254 {HEAD}"]
        table += [f"10.78.0.{i + 1} {name}" for i, name in enumerate(self.names)]
        (self.folder / "hosts").write_text("\n".join(table) + "\n")
        for name in (HEAD, *self.names):
            mounts = "mount -t tmpfs shm /dev/shm; mount -t sysfs sysfs /sys"
            hosts = f"mount --bind {shlex.quote(str(self.folder / 'hosts'))} /etc/hosts"
            self.run(name, f"hostname {name}; {mounts}; {hosts}; ip link set lo up")
        self.run(HEAD, f"ip link add {CARD} type bridge; ip link set {CARD} up")
        self.run(HEAD, f"ip addr add 10.78.0.254/24 dev {CARD}")
        for i, name in enumerate(self.names):
            peer = f"peer name {CARD} netns {self._pid(name)}"
            self.run(HEAD, f"ip link add wire{i} type veth {peer}")
            self.run(HEAD, f"ip link set wire{i} master {CARD} up")
            self.run(name, f"ip addr add 10.78.0.{i + 1}/24 dev {CARD}; ip link set {CARD} up")


@contextlib.contextmanager
def emulated_hosts(count: int, folder: Path) -> Iterator[Hosts]:
    """Hosts that are gone afterwards.

    Raises:
        Unavailable: where the machine gives none.
    """
    missing = [tool for tool in ("unshare", "nsenter", "ip") if shutil.which(tool) is None]
    if missing:
        raise Unavailable(f"not installed: {', '.join(missing)}")
    hosts = Hosts(count, folder)
    hosts.remote_shell.write_text(_REMOTE_SHELL.format(folder=shlex.quote(str(folder))))
    hosts.remote_shell.chmod(0o700)
    with contextlib.ExitStack() as stack:
        for name in (HEAD, *hosts.names):
            holder = stack.enter_context(_namespaces())
            (folder / f"{name}.pid").write_text(str(holder.pid))
        hosts.connect()
        yield hosts


@contextlib.contextmanager
def _namespaces() -> Iterator[subprocess.Popen[str]]:
    """A process that holds new namespaces; it is in them once it has become ``sleep``."""
    command: Sequence[str] = ["unshare", "-n", "-u", "-i", "-m", "sleep", str(_LIFE_S)]
    holder = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        name = Path(f"/proc/{holder.pid}/comm")
        until = time.monotonic() + 10
        while holder.poll() is None and name.read_text().strip() != "sleep":
            if time.monotonic() > until:
                raise Unavailable("unshare does not come to an end")
            time.sleep(0.01)
        if holder.poll() is not None:
            assert holder.stderr is not None
            raise Unavailable(holder.stderr.read().strip())
        yield holder
    finally:
        holder.kill()
        holder.communicate()
