"""How do lines, pastes and scripts become the inputs of a session?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol

from agentkernel.domain.errors import SettingError

BEGIN, END = "<<<", ">>>"
YES = frozenset({"y", "yes"})
ALWAYS = frozenset({"a", "always"})


class InputSource(Protocol):
    """Where inputs come from."""

    @property
    def typed(self) -> bool:
        """True where somebody sits at a terminal."""
        ...

    def lines(self) -> Iterator[str]:
        """Line after line, without its end, until there is none."""
        ...

    def answer(self, question: str) -> str:
        """The answer to a question; "" where there is nobody to ask."""
        ...


class UnclosedBlock(Exception):
    """A block without its end. `line` counts from 1."""

    def __init__(self, line: int) -> None:
        super().__init__(f"The block that begins at line {line} with {BEGIN} has no {END}.")
        self.line = line


def inputs(lines: Iterator[str]) -> Iterator[str]:
    """One text a turn: a line, or all between `<<<` and `>>>`. Lines that begin with `#` are
    comments. Raises Block where a block does not end: half a paste is judged by nobody."""
    for number, line in enumerate(lines, start=1):
        plain = line.strip()
        if plain == BEGIN:
            yield _block(lines, number)
        elif not plain.startswith("#") or "\n" in plain:
            yield line


def _block(lines: Iterator[str], begin: int) -> str:
    held: list[str] = []
    for line in lines:
        if line.strip() == END:
            return "\n".join(held)
        held.append(line)
    raise UnclosedBlock(begin)


class ScriptInput:
    """A file of lines, or standard input where it is no terminal."""

    typed = False

    def __init__(self, path: Path | None = None) -> None:
        self._lines = read_stdin() if path is None else iter(read_script(path))

    def lines(self) -> Iterator[str]:
        return self._lines

    def answer(self, question: str) -> str:
        """The next line: a script answers where it is asked."""
        return next(self._lines, "")


def read_script(path: Path) -> list[str]:
    """The lines of a script, or the texts of an exported `.jsonl`. Raises SettingError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise SettingError(
            f"Cannot read the script {str(path)!r}: {why}. Expected a text file, one request a "
            "line. Next: check --script."
        ) from error
    lines = text.splitlines()
    if path.suffix != ".jsonl":
        return lines
    return [line for at, item in enumerate(lines, 1) for line in _typed(path, at, item)]


def _typed(path: Path, at: int, item: str) -> list[str]:
    """What was typed in one turn of an exported session, as lines of a script."""
    try:
        turn = json.loads(item)
    except ValueError:
        turn = None
    text = turn.get("text") if isinstance(turn, dict) else None
    approved = turn.get("approved") if isinstance(turn, dict) else None
    if not isinstance(text, str) or not isinstance(approved, list | None):
        raise SettingError(
            f"Line {at} of {str(path)!r} is no turn of a session. Expected an object with 'text'. "
            "Next: export the session again."
        )
    answers = ["y" if said is True else "n" for said in approved or ()]
    return [BEGIN, *text.split("\n"), END, *answers] if "\n" in text else [text, *answers]


def is_terminal(stream: IO[str] | None) -> bool:
    """False for a stream that was closed before the program began, which is None."""
    return stream is not None and stream.isatty()


def read_stdin() -> Iterator[str]:
    """Lines that are piped in, each as soon as it is there; what is no UTF-8 is replaced."""
    if sys.stdin is None:
        return iter(())
    reconfigure = getattr(sys.stdin, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
    return (line.rstrip("\r\n") for line in iter(sys.stdin))
