"""The address of another machine: `ssh://user@host[:port][?python=PATH&config=FILE]`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlsplit

from agentkernel.domain.errors import SettingError

EXPECTED = "Expected ssh://user@host[:port][?python=PATH][&config=FILE]"
PYTHON = "python3"
OPTIONS = ("python", "config")
# Neither begins with a hyphen: ssh would read an option.
HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*|[0-9a-fA-F:]+(?:%[\w.-]+)?")
USER = re.compile(r"[A-Za-z0-9_][\w.@+-]*")


@dataclass(frozen=True)
class Address:
    """A machine, the Python there that has agentkernel, and a file of ssh's own settings here.

    `port` None, `user` "" and `config` "": what the user's ssh_config says.
    """

    host: str
    user: str = ""
    port: int | None = None
    python: str = PYTHON
    config: str = ""

    @property
    def label(self) -> str:
        """For people: `user@host`."""
        return f"{self.user}@{self.host}" if self.user else self.host

    @property
    def known_as(self) -> str:
        """Its name in known_hosts."""
        return self.host if self.port in (None, 22) else f"[{self.host}]:{self.port}"

    @property
    def ssh_words(self) -> str:
        """For a line that the user types: `ssh -p 2222 user@host`."""
        port = "" if self.port is None else f"-p {self.port} "
        return f"ssh {port}{self.label}"


def parse_address(url: str) -> Address:
    """Read an URL. Raises SettingError for what is none, or holds a password."""
    shown = url.rpartition("@")[2]  # a message holds nothing that may be a password
    try:
        parts = urlsplit(url)
        host, port, password = parts.hostname or "", parts.port, parts.password
        pairs = parse_qsl(parts.query, strict_parsing=True, keep_blank_values=True)
        options = dict(pairs)
    except ValueError as error:
        if str(error).startswith("bad query"):
            raise _bad(shown, "its options are not NAME=VALUE") from error
        raise _bad(shown, "it is no URL, or its port no number up to 65535") from error
    if password is not None:
        raise SettingError(
            f"--remote: the URL of {shown!r} holds a password. Expected none: ssh takes keys from "
            "the agent or ~/.ssh. Next: leave it out, and 'ssh-copy-id' brings your key there."
        )
    if why := _fault(parts, host, port):
        raise _bad(shown, why)
    if len(options) < len(pairs) or not set(options) <= set(OPTIONS) or "" in options.values():
        raise _bad(shown, f"its options are {', '.join(name for name, _ in pairs)}")
    if any(not value.isprintable() for value in options.values()):
        raise _bad(shown, "a path in it has a control character")
    return Address(host, parts.username or "", port, **options)


def _fault(parts: SplitResult, host: str, port: int | None) -> str:
    """What is wrong before the options; "" for nothing."""
    if parts.scheme != "ssh":
        return f"its scheme is {parts.scheme!r}" if parts.scheme else "it has no ssh://"
    if not HOST.fullmatch(host):
        return "it names no host"
    if parts.username is not None and not USER.fullmatch(parts.username):
        return "its user is no name"
    if port == 0:
        return "its port is 0"
    if parts.path not in ("", "/") or parts.fragment:
        return "it has a path"
    return ""


def _bad(shown: str, why: str) -> SettingError:
    return SettingError(
        f"--remote: {shown!r} is no address of a machine: {why}. {EXPECTED}. "
        "Next: try it with 'agentkernel doctor --remote URL'."
    )
