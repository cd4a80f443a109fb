"""How does an op fail, by name? A value, never an exception."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal

from agentkernel.tools.sandbox.protocol import JSON

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
