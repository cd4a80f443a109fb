"""The first answer of the MCP server on pipes, given before the SDK is imported.

The SDK takes more than a second to import. The first line of a client asks who the server is and
what it can do, which is known without it. The SDK hears that line too, as its connection begins
with it, and what it answers to it is left out.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agentkernel.version import __version__

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

STDIN, STDOUT, STDERR = 0, 1, 2
LONGEST = 2**16
"""Bytes of a first line that are looked at; the SDK reads a longer one."""
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions of the protocol that begin with `initialize`: modelcontextprotocol.io."""
STATELESS_VERSION = "2026-07-28"
"""The revision whose requests carry their version each; its clients may ask `server/discover`."""
META = "io.modelcontextprotocol/"
NAME = "agentkernel"
INSTRUCTIONS = (
    "agentkernel makes PyTorch modules faster with Triton drop-ins that are proven right. "
    "Begin with plan(module). Then either optimize(module), or write a file with ModelNew "
    "and judge it until it is accepted, profile it, and keep the fastest. Work that takes long "
    "gives a run_id at once: ask result(run_id, wait_s=50). Four runs at most are at work at "
    "once; a fifth is refused. Believe judge and verify, not yourself. Paths are relative to the "
    "workspace."
)


def first_answer(line: bytes) -> dict[str, object] | None:
    """What is answered to a client's first line; None where the SDK has to answer it."""
    try:
        asked = json.loads(line)
        params = asked["params"]
        method, number = asked["method"], asked["id"]
        meta = params.get("_meta", {})
        version = params.get("protocolVersion", meta.get(f"{META}protocolVersion"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if asked.get("jsonrpc") != "2.0" or type(number) not in (int, str):
        return None
    if method == "initialize" and version in HANDSHAKE_VERSIONS and _introduced(params):
        return {"jsonrpc": "2.0", "id": number, "result": _initialized(version)}
    if method == "server/discover" and version == STATELESS_VERSION:
        return {"jsonrpc": "2.0", "id": number, "result": _discovered()}
    return None


def _introduced(params: dict[str, object]) -> bool:
    """True where a client says who it is and what it can do, as it has to."""
    client = params.get("clientInfo")
    named = isinstance(client, dict) and {"name", "version"} <= client.keys()
    return named and isinstance(params.get("capabilities"), dict)


def _capabilities(changes: bool) -> dict[str, object]:
    return {
        "prompts": {"listChanged": changes},
        "resources": {"listChanged": changes, "subscribe": changes},
        "tools": {"listChanged": changes},
    }


def _initialized(version: str) -> dict[str, object]:
    return {
        "capabilities": _capabilities(changes=False),
        "instructions": INSTRUCTIONS,
        "protocolVersion": version,
        "serverInfo": {"name": NAME, "version": __version__},
    }


def _discovered() -> dict[str, object]:
    return {
        "cacheScope": "private",
        "capabilities": _capabilities(changes=True),
        "instructions": INSTRUCTIONS,
        "resultType": "complete",
        "supportedVersions": [STATELESS_VERSION],
        "ttlMs": 0,
        "_meta": {f"{META}serverInfo": {"name": NAME, "version": __version__}},
    }


@contextmanager
def answered_pipes() -> Iterator[None]:
    """Read the client's first line and answer it; while this holds, `sys.stdin` gives that line
    and what follows, and `sys.stdout` leaves out a second answer to it.

    Files 0 and 1 are /dev/null and stderr from here on: what another library reads or prints
    does not meet the protocol.
    """
    read, write = os.dup(STDIN), os.dup(STDOUT)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, STDIN)
    os.dup2(STDERR, STDOUT)
    os.close(nowhere)
    line = _first_line(read)
    answer, before = first_answer(line), (sys.stdin, sys.stdout)
    if answer is not None:
        _write_all(write, json.dumps(answer).encode() + b"\n")
    answered = None if answer is None else answer["id"]
    sys.stdin = io.TextIOWrapper(io.BufferedReader(_Requests(read, line)), "utf-8", "replace")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(_Answers(write, answered)), "utf-8")
    try:
        yield
    finally:
        sys.stdin, sys.stdout = before


def _first_line(file: int) -> bytes:
    """One byte at a time: what follows the line is the SDK's to read."""
    line = bytearray()
    while len(line) < LONGEST and not line.endswith(b"\n"):
        byte = os.read(file, 1)
        if not byte:
            break
        line += byte
    return bytes(line)


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


class _Requests(io.RawIOBase):
    """A file that begins with a line which was read of it before."""

    def __init__(self, file: int, line: bytes) -> None:
        self._file, self._line = file, line

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        room = memoryview(buffer)
        data = self._line[: len(room)] or os.read(self._file, len(room))
        self._line = self._line[len(room) :]
        room[: len(data)] = data
        return len(data)


class _Answers(io.RawIOBase):
    """A file of lines of JSON, less the answer to the request `answered`; None: all of them."""

    def __init__(self, file: int, answered: object) -> None:
        self._file, self._answered, self._held = file, answered, b""

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        given = bytes(data)
        *lines, self._held = (self._held + given).split(b"\n")
        for line in lines:
            if not self._is_second(line):
                _write_all(self._file, line + b"\n")
        return len(given)

    def _is_second(self, line: bytes) -> bool:
        if self._answered is None:
            return False
        said = json.loads(line)
        second = bool(said.get("id") == self._answered and "method" not in said)
        self._answered = None if second else self._answered
        return second
