"""The protocol of parent and worker: pickles down (trusted), bounded JSON up, named failures.

Every reply names the request that it answers; one that answers another, comes unrequested or has
bytes behind it ends the worker. JSON from the worker is never unpickled. A failed operation is a
value, never an exception.
"""

from __future__ import annotations

import json
import pickle
import re
import secrets
import signal
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import cloudpickle

from agentkernel.domain.plain_text import plain_values

JSON = None | bool | int | float | str | list["JSON"] | dict[str, "JSON"]
HEADER = struct.Struct("!QI")
REPLY_HEADER = struct.Struct("!Q")
FDS_PER_MESSAGE = 200
ESCAPED = re.compile(rb"\\[bfru]|[\x7f-\xff]")
"""What the JSON of a text has in it that is more than ASCII that prints."""
READY = "ready"
"""The name of the one reply that answers no request: the worker has started."""


class ProtocolError(Exception):
    """The peer sent something that is not a frame, or went away."""


def pack_request(message: object) -> bytes:
    """Pickle `message`; classes that a worker cannot import go by value: those of the user's script
    and those that `pickle_by_value` was told of."""
    return cast(bytes, cloudpickle.dumps(message))


def send_request(sock: socket.socket, body: bytes, fds: Sequence[int]) -> None:
    """One request: a header that carries the file descriptors, then the pickle."""
    first, rest = fds[:FDS_PER_MESSAGE], fds[FDS_PER_MESSAGE:]
    socket.send_fds(sock, [HEADER.pack(len(body), len(fds))], list(first))
    while rest:
        socket.send_fds(sock, [b"+"], list(rest[:FDS_PER_MESSAGE]))
        rest = rest[FDS_PER_MESSAGE:]
    sock.sendall(body)


def receive_request(sock: socket.socket) -> tuple[object, list[int]] | None:
    """The next request and its file descriptors; None where the parent has closed the line."""
    head, fds, _, _ = socket.recv_fds(sock, HEADER.size, FDS_PER_MESSAGE)
    if not head:
        return None
    while len(head) < HEADER.size:
        head += _exactly(sock, HEADER.size - len(head))
    length, count = HEADER.unpack(head)
    while len(fds) < count:
        _, more, _, _ = socket.recv_fds(sock, 1, FDS_PER_MESSAGE)
        if not more:
            raise ProtocolError("file descriptors are missing")
        fds.extend(more)
    return pickle.loads(_exactly(sock, length)), list(fds)


def request_name() -> str:
    """A name for a request that nobody can know before it is sent."""
    return secrets.token_hex(16)


def send_reply(sock: socket.socket, name: str, reply: Mapping[str, JSON]) -> None:
    """The reply to the request `name` as a JSON frame."""
    body = json.dumps({"id": name, **reply}).encode()
    sock.sendall(REPLY_HEADER.pack(len(body)) + body)


class ReplyReader:
    """Collects the JSON frame that answers `name` from a socket that is read as data comes in."""

    def __init__(self, name: str, max_bytes: int) -> None:
        self._name = name
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> dict[str, JSON] | None:
        """The reply once it is complete. Raises ProtocolError for anything malformed."""
        self._buffer += data
        if len(self._buffer) < REPLY_HEADER.size:
            return None
        (length,) = REPLY_HEADER.unpack(self._buffer[: REPLY_HEADER.size])
        if length > self._max_bytes:
            raise ProtocolError(f"a reply of {length} bytes; at most {self._max_bytes} are read")
        end = REPLY_HEADER.size + length
        if len(self._buffer) < end:
            return None
        if len(self._buffer) > end:
            raise ProtocolError("bytes after the end of the reply")
        reply = parse_reply(bytes(self._buffer[REPLY_HEADER.size : end]))
        if reply.pop("id", None) != self._name:
            raise ProtocolError("a reply to another request")
        return reply


def parse_reply(body: bytes) -> dict[str, JSON]:
    """Decode one JSON object. Raises ProtocolError for anything else."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a reply that is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ProtocolError("a reply that is not a JSON object")
    # A candidate names its kernels and words its errors.
    return cast("dict[str, JSON]", plain_values(value) if ESCAPED.search(body) else value)


def _exactly(sock: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        data = sock.recv(min(1 << 20, count - len(parts)))
        if not data:
            raise ProtocolError("the line closed inside a frame")
        parts += data
    return bytes(parts)


Reason = Literal["raised", "died", "timeout", "memory"]
Cause = Literal[
    "raised", "timeout", "memory", "processes", "disk", "output", "stopped", "reply", "signal",
    "exit", "launcher",
]  # fmt: skip
"""reply: a frame that is no answer to the request. launcher: what watches the worker is gone."""
REASONS: dict[Cause, Reason] = {"raised": "raised", "timeout": "timeout", "memory": "memory"}
"""The others are "died"."""
NO_SPACE = "[Errno 28]"
MEMORY_WORDS = ("MemoryError", "OutOfMemoryError", "can't allocate memory", "out of memory")


@dataclass(frozen=True)
class WorkerFailed:
    """An op that gave no value. After "raised" the worker lives on; after the others it is gone.

    `log` is the traceback, or the tail of what the worker printed under a first line "cause: what
    happened"; `error` the exception's type; `line` the candidate's line where known.
    """

    reason: Reason
    log: str
    error: str = ""
    line: int | None = None
    cause: Cause = "raised"


def ended(cause: Cause, note: str, log: str) -> WorkerFailed:
    """The failure of a worker that is gone: `log` is what it printed."""
    text = f"{cause}: {note}\n{log}".strip()
    return WorkerFailed(REASONS.get(cause, "died"), text, cause=cause)


def outcome(reply: dict[str, JSON]) -> dict[str, JSON] | WorkerFailed:
    """The value in a reply, or what the op raised."""
    value = reply.get("value")
    if reply.get("ok") is True and isinstance(value, dict):
        return value
    error, line = str(reply.get("error", "")), reply.get("line")
    log = str(reply.get("traceback", reply.get("message", "an answer without a value")))
    memory = any(word in f"{error} {reply.get('message', '')}" for word in MEMORY_WORDS)
    return WorkerFailed(
        "memory" if memory else "raised",
        log,
        error,
        line if isinstance(line, int) else None,
        "memory" if memory else "raised",
    )


def is_disk_full(failed: WorkerFailed) -> bool:
    """True where the scratch's own bound came before the census that watches it."""
    return failed.error == "OSError" and NO_SPACE in failed.log


def exit_note(code: int | None) -> str:
    """What the launcher's exit code says, where the launcher itself said nothing."""
    if code is None or code == 0:
        return "the worker went away"
    number = -code if code < 0 else code - 128
    try:
        return f"ended by {signal.Signals(number).name}"
    except ValueError:
        return f"exit code {code}"
