"""How does a command write to the screen, and how to a program?"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING, Protocol

from agentkernel.domain.plain_text import plain, plain_line

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH = 110
"""Columns where no terminal says how many it has."""


class Dumped(Protocol):
    """A pydantic value."""

    def model_dump_json(self, *, ensure_ascii: bool = False) -> str:
        """It as JSON."""


def console() -> Console:
    """A console on stdout; plain text of a fixed width where it is not a terminal."""
    from agentkernel.cli.rendering.plain_console import PlainConsole

    if sys.stdout.isatty():
        return PlainConsole(highlight=False)
    return PlainConsole(highlight=False, width=PLAIN_WIDTH, force_terminal=False, no_color=True)


def print_plain(text: object = "", *, error: bool = False) -> None:
    """Print lines, whoever wrote the words in them, to stdout or stderr at once."""
    print(plain(str(text)), file=sys.stderr if error else sys.stdout, flush=True)


def print_json(value: Dumped | dict[str, object] | list[dict[str, object]]) -> None:
    """One JSON value on one line, at once."""
    print(json_line(value), flush=True)


def json_line(value: Dumped | dict[str, object] | list[dict[str, object]]) -> str:
    """`value` as JSON in ASCII, so that no text in it steers a terminal."""
    if isinstance(value, dict | list):
        return json.dumps(value)
    return value.model_dump_json(ensure_ascii=True)


def print_failure(line: str, exit_code: int, kind: str, *, as_json: bool) -> None:
    """The one line of a failure: on stderr, and as an object on stdout where JSON is asked for."""
    text = plain_line(" ".join(line.split()))
    if as_json:
        print_json({"error": text, "kind": kind, "exit_code": exit_code})
    with contextlib.suppress(OSError):  # nobody is left to be told
        print(f"agentkernel: {text}", file=sys.stderr, flush=True)
