"""How does a command write to the screen, and how to a program?"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

PLAIN_WIDTH = 110
"""Columns where no terminal says how many it has."""


def console() -> Console:
    """A rich console on stdout; plain text of a fixed width where it is not a terminal."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=PLAIN_WIDTH, force_terminal=False, no_color=True)


def print_json(value: BaseModel | dict[str, object] | list[dict[str, object]]) -> None:
    """One JSON value on one line, at once."""
    text = json.dumps(value) if isinstance(value, dict | list) else value.model_dump_json()
    print(text, flush=True)


def print_failure(line: str, exit_code: int, kind: str, *, as_json: bool) -> None:
    """The one line of a failure: on stderr, and as an object on stdout where JSON is asked for."""
    text = " ".join(line.split())
    if as_json:
        print_json({"error": text, "kind": kind, "exit_code": exit_code})
    with contextlib.suppress(OSError):  # nobody is left to be told
        print(f"agentkernel: {text}", file=sys.stderr, flush=True)
