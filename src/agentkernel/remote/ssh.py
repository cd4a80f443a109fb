"""The system's ssh: its command line, what its failures mean, and what a machine behind it has.

known_hosts is strict, nothing is asked on the terminal, and no variable of the environment goes
along (ssh_config(5)).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from importlib.resources import files
from urllib.parse import quote

from pydantic import ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import MissingDependency, RemoteUnavailable, one_line
from agentkernel.remote.address import Address
from agentkernel.version import __version__

CONNECT_S = 15
PROBE_S = 60.0
FAILED = 255
"""What ssh ends with where ssh itself failed; else its exit code is the command's."""
OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "UpdateHostKeys=no",
    f"ConnectTimeout={CONNECT_S}",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RequestTTY=no",
    "ControlMaster=no",
)
"""ControlMaster: one that ssh leaves in the background would outlive the command."""
VARIABLES = ("HOME", "PATH", "USER", "LOGNAME", "SSH_AUTH_SOCK", "KRB5CCNAME", "XDG_RUNTIME_DIR")
"""What ssh is given of the environment: SendEnv in an ssh_config can send no other."""
KEY_LINE = re.compile(r"Server host key: (\S+) (SHA256:\S+)")


def ssh_command(address: Address, *options: str) -> list[str]:
    """ssh up to the command that runs there. Raises MissingDependency where there is no ssh."""
    program = shutil.which("ssh")
    if program is None:
        raise MissingDependency(
            "--remote needs the program ssh, and there is none here. Next: apt-get install "
            "openssh-client."
        )
    words = [program, "-T", *options]
    words += [word for option in OPTIONS for word in ("-o", option)]
    words += ["-F", os.path.expanduser(address.config)] if address.config else []
    words += ["-p", str(address.port)] if address.port is not None else []
    words += ["-l", address.user] if address.user else []
    return [*words, "--", address.host]


def ssh_environment() -> dict[str, str]:
    """The environment of ssh: nothing that may be a secret."""
    kept = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    return {**kept, "LC_ALL": "C"}


def start_ssh(address: Address, command: str, *options: str) -> subprocess.Popen[bytes]:
    """ssh with `command` for the shell there, on three pipes. It does not hear the terminal's
    Ctrl-C: it ends as its stdin is closed."""
    return subprocess.Popen(
        [*ssh_command(address, *options), command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ssh_environment(),
        start_new_session=True,
    )


def run_ssh(address: Address, command: str, given: bytes) -> tuple[int, str]:
    """The exit code of a short `command` that reads `given`, and what it printed. Raises
    RemoteUnavailable where ssh fails, or no answer comes in PROBE_S."""
    with start_ssh(address, command) as ssh:
        try:
            out, log = ssh.communicate(given, PROBE_S)
        except subprocess.TimeoutExpired as error:
            ssh.kill()
            raise RemoteUnavailable(
                f"{address.label} gives no answer within {PROBE_S:g} s. Next: try "
                f"'{address.ssh_words}'."
            ) from error
    text = log.decode(errors="replace")
    if ssh.returncode == FAILED:
        raise ssh_failure(address, text)
    return ssh.returncode, out.decode(errors="replace") + text


def python_command(address: Address, *words: str) -> str:
    """Python there, with `words`, in a form that every login shell understands. It ends with
    Python's exit code, also where that was killed."""
    home, _, rest = address.python.partition("/")
    inside = home == "~" and rest
    python = f'"$HOME"/{shlex.quote(rest)}' if inside else shlex.quote(address.python)
    return f"exec sh -c {shlex.quote(f'{python} {shlex.join(words)}; exit $?')}"


def is_refusal(log: str) -> bool:
    """Whether the other machine was reached and trying again would change nothing."""
    refused = ("Host key verification failed", "Permission denied (", "Bad configuration option")
    return any(words in log for words in refused)


def ssh_failure(address: Address, log: str) -> RemoteUnavailable:
    """What ssh says on its stderr, with the next step. A host key that is not known is asked for
    once more, for its fingerprint."""
    label = address.label
    if "HOST IDENTIFICATION HAS CHANGED" in log:
        return RemoteUnavailable(
            f"The host key of {label} has changed: it is now {_fingerprint(address)}. Expected the "
            "one in known_hosts; somebody may stand in between. Next: compare it with 'ssh-keygen "
            "-lf /etc/ssh/ssh_host_ed25519_key.pub' there, and only where they agree: ssh-keygen "
            f"-R '{address.known_as}', then ssh-keyscan."
        )
    if "Host key verification failed" in log:
        port = "" if address.port is None else f"-p {address.port} "
        return RemoteUnavailable(
            f"The host key of {label} is not known: it is {_fingerprint(address)}. Expected it in "
            "known_hosts. Next: compare it with 'ssh-keygen -lf "
            "/etc/ssh/ssh_host_ed25519_key.pub' there, then: "
            f"ssh-keyscan {port}{address.host} >> ~/.ssh/known_hosts."
        )
    if "Permission denied (" in log:
        return RemoteUnavailable(
            f"{label} does not let you in: {_said(log)}. Expected a key that it knows, from the "
            "agent or ~/.ssh. Next: ssh-add, or ssh-copy-id; then try "
            f"'{address.ssh_words}'."
        )
    return RemoteUnavailable(
        f"{label} cannot be reached: {_said(log)}. Next: try '{address.ssh_words}'."
    )


def worker_failure(address: Address, code: int, log: str) -> RemoteUnavailable:
    """Why Python there ended with `code` and without an answer."""
    label, url = address.label, f"agentkernel doctor --remote '{url_of(address)}'"
    python = address.python
    if code == 127 or (code == 126 and "not found" in log):
        return RemoteUnavailable(
            f"There is no Python {python!r} on {label}. Expected one with agentkernel. Next: name "
            f"it, ssh://...?python=PATH, or see '{url}'."
        )
    if "No module named agentkernel" in log:
        return RemoteUnavailable(
            f"There is no agentkernel in {python!r} on {label}. Expected {__version__}, as here. "
            f"Next: {install_line(address)}. See '{url}'."
        )
    if "No such command" in log:
        return RemoteUnavailable(
            f"The agentkernel in {python!r} on {label} is too old to be asked. Expected "
            f"{__version__}, as here. Next: {install_line(address)}."
        )
    how = f"was ended by signal {code - 128}" if 128 < code < 160 else f"ended with {code}"
    return RemoteUnavailable(f"The worker on {label} {how}: {_said(log)}. Next: see '{url}'.")


def install_line(address: Address) -> str:
    """The line, typed in a clone of this version, that installs it there."""
    wheel = f"agentkernel_triton-{__version__}-py3-none-any.whl"
    port = "" if address.port is None else f"-P {address.port} "
    return (
        f"uv build --wheel && scp {port}dist/{wheel} {address.label}: && {address.ssh_words} "
        f"{address.python} -m pip install ./{wheel}"
    )


def url_of(address: Address) -> str:
    """The URL that `parse_address` reads as `address`."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    user = f"{address.user}@" if address.user else ""
    port = "" if address.port is None else f":{address.port}"
    given = Address(address.host)
    options = [
        f"{name}={quote(getattr(address, name), safe='/~')}"
        for name in ("python", "config")
        if getattr(address, name) != getattr(given, name)
    ]
    return f"ssh://{user}{host}{port}" + (f"?{'&'.join(options)}" if options else "")


def _fingerprint(address: Address) -> str:
    """The host's key as ssh sees it now."""
    with start_ssh(address, "true", "-v") as ssh:
        try:
            _, log = ssh.communicate(timeout=2 * CONNECT_S)
        except subprocess.TimeoutExpired:
            ssh.kill()
            return "not shown any more"
    found = KEY_LINE.search(log.decode(errors="replace"))
    return f"{found[1]} {found[2]}" if found else "not shown any more"


def _said(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return one_line(lines[-1], 200).rstrip(".") if lines else "it says nothing"


class MachineFacts(Frozen):
    """Versions are "" where a package is not installed, `gpu` and `sandbox` where there is none."""

    python: str
    executable: str
    agentkernel: str
    torch: str
    triton: str
    gpu: str
    sandbox: str
    disk: str
    """The folder that the worker's files go to, or the one above it that is there."""
    free_gb: float


def inspect_machine(address: Address) -> MachineFacts:
    """Ask the machine. Raises RemoteUnavailable where it cannot be reached or has no Python."""
    script = files("agentkernel.remote").joinpath("probe.py").read_bytes()
    code, text = run_ssh(address, python_command(address, "-"), script)
    for line in text.splitlines():
        try:
            return MachineFacts.model_validate_json(line)
        except ValidationError:
            continue  # what a login shell prints
    raise worker_failure(address, code, text)
