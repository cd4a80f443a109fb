"""A real sshd on a free loopback port, with keys and a known_hosts of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PROGRAM = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
PRIVILEGE_FOLDER = Path("/run/sshd")
SETTINGS = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized
PidFile {folder}/pid
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
AcceptEnv *
PermitRootLogin prohibit-password
SetEnv XDG_CACHE_HOME={folder}/cache OMP_NUM_THREADS=1 XDG_DATA_HOME={data}
"""
CLIENT = """
Host *
  IdentityFile {folder}/user
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  SendEnv *
"""


def make_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


@dataclass
class Sshd:
    """A daemon, whose other files lie in `folder`."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def cache(self) -> Path:
        return self.folder / "cache" / "agentkernel" / "remote"

    def url(self, python: str = sys.executable, user: str = "") -> str:
        name = user or getpass.getuser()
        config = self.folder / "config"
        return f"ssh://{name}@127.0.0.1:{self.port}?python={python}&config={config}"

    def know(self, key: Path | None = None) -> None:
        """Put a host key, usually the right one, into known_hosts."""
        kind, text, *_ = (key or self.folder / "host.pub").read_text().split()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {kind} {text}\n")

    def stop(self) -> None:
        """Let nobody in any more; who is in stays."""
        self.process.terminate()
        self.process.wait()

    def start(self) -> None:
        """Listen again, on the same port."""
        self.process = _started(self.folder, self.port)

    def connections(self) -> list[int]:
        """The processes of the daemon, the top one left out."""
        return [pid for pid in descendants(self.process.pid) if command(pid).startswith("sshd")]

    def workers(self) -> list[int]:
        """The workers that run now."""
        return [
            pid
            for pid in descendants(self.process.pid)
            if "remote-worker" in command(pid) and not command(pid).startswith("sh ")
        ]


def command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def descendants(pid: int) -> list[int]:
    """All processes below `pid`."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            text = stat.read_text()
            fields = text.rpartition(")")[2].split()
            if fields[0] != "Z":
                children.setdefault(int(fields[1]), []).append(int(text.split()[0]))
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def wait_until(condition, seconds: float = 60.0) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.05)


@contextmanager
def sshd(folder: Path) -> Iterator[Sshd]:
    """A daemon that lets in the key of `folder`, which holds all of its files."""
    assert PROGRAM is not None
    if os.geteuid() == 0:
        PRIVILEGE_FOLDER.mkdir(mode=0o755, exist_ok=True)
    make_key(folder / "host")
    make_key(folder / "user")
    shutil.copy(folder / "user.pub", folder / "authorized")
    (folder / "cache").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = os.environ.get("XDG_DATA_HOME", str(folder / "data"))
    (folder / "sshd_config").write_text(SETTINGS.format(folder=folder, port=port, data=data))
    (folder / "config").write_text(CLIENT.format(folder=folder))
    found = Sshd(folder, port, _started(folder, port))
    try:
        yield found
    finally:
        below = descendants(found.process.pid)
        found.stop()
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _started(folder: Path, port: int) -> subprocess.Popen[bytes]:
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [str(PROGRAM), "-D", "-e", "-f", str(folder / "sshd_config")],
            stderr=log,
            start_new_session=True,
        )
    wait_until(lambda: _listens(port), 10.0)
    return process


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
