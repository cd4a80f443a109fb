"""Inputs of a session that come from scripts, pipes and the user's editor.

A line is one input, and so is all between `<<<` and `>>>`; lines that begin with `#` are
comments. A script is such a file or an exported `.jsonl`. The editor is $VISUAL, else $EDITOR;
its file stays in the session's folder.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from agentkernel.domain.errors import OutputError, SettingError
from agentkernel.storage.files import make_folder, write_atomic

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


def shortened(text: str, most: int) -> str:
    """The first line of `text`, at most `most` characters, with what was left out."""
    first, _, rest = text.strip().partition("\n")
    more = f" ... ({rest.count(chr(10)) + 2} lines)" if rest.strip() else ""
    cut = f"{first[:most]}..." if len(first) > most else first
    return f"{cut}{more}"


def is_terminal(stream: IO[str] | None) -> bool:
    """False for a stream that was closed before the program began, which is None."""
    return stream is not None and stream.isatty()


def is_person() -> bool:
    """True where somebody sits at both ends."""
    return is_terminal(sys.stdin) and is_terminal(sys.__stdout__)


def read_stdin() -> Iterator[str]:
    """Lines that are piped in, each as soon as it is there; what is no UTF-8 is replaced."""
    if sys.stdin is None:
        return iter(())
    reconfigure = getattr(sys.stdin, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
    return (line.rstrip("\r\n") for line in iter(sys.stdin))


FOLDER = "edits"
USUAL = ("nano", "vim", "vi")
TAKES_LINE = frozenset({"nano", "vim", "vi", "nvim", "emacs", "micro", "kak", "joe"})
"""Editors that open a file at the line of a `+12` before it."""


@dataclass(frozen=True)
class Edited:
    """A new text."""

    source: str
    path: Path


@dataclass(frozen=True)
class NotEdited:
    """Nothing to judge, and why. `failed`: something went wrong."""

    reason: str
    failed: bool


def edit(text: str, number: int | None, line: int | None, folder: Path) -> Edited | NotEdited:
    """Open `text` of candidate `number` (None: the module) at `line` in $VISUAL or $EDITOR.

    The file stays in `folder`, whatever becomes of the editor.
    """
    words = editor_words(os.environ)
    if isinstance(words, NotEdited):
        return words
    try:
        path = new_file(folder / FOLDER, number, text)
    except OutputError as error:
        return NotEdited(str(error), failed=True)
    at = [f"+{line}"] if line is not None and Path(words[0]).name in TAKES_LINE else []
    problem = _run([*words, *at, str(path)])
    if problem is not None:
        kept = f"The text is kept in {str(path)!r}"
        return NotEdited(f"{problem}, so nothing is judged. {kept}.", failed=True)
    return read_back(path, text)


def editor_words(environment: Mapping[str, str]) -> list[str] | NotEdited:
    """The editor's command: $VISUAL, else $EDITOR, else one that is there."""
    for name in ("VISUAL", "EDITOR"):
        value = environment.get(name, "").strip()
        if value:
            try:
                return shlex.split(value)
            except ValueError as error:
                why = f"${name} is {value[:80]!r}, which no shell can read: {error}"
                return NotEdited(f"{why}. Next: set it to e.g. 'nano'.", failed=True)
    found = next((path for path in map(shutil.which, USUAL) if path), None)
    if found is None or not is_terminal(sys.stdin):
        return NotEdited(
            "No editor: $VISUAL and $EDITOR are not set. Next: export EDITOR=nano, or paste the "
            "file into the session.",
            failed=True,
        )
    return [found]


def new_file(folder: Path, number: int | None, text: str) -> Path:
    """`edits/c3-1.py` with `text`, a name that is free. Raises OutputError."""
    make_folder(folder)
    stem = "module" if number is None else f"c{number}"
    taken = (item.stem.removeprefix(f"{stem}-") for item in folder.glob(f"{stem}-*.py"))
    last = max((int(name) for name in taken if name.isascii() and name.isdigit()), default=0)
    path = folder / f"{stem}-{last + 1}.py"
    write_atomic(path, text)
    return path


def _run(command: list[str]) -> str | None:
    """What went wrong, None where the editor ended well. It never reads a script's lines."""
    stdin = None if is_terminal(sys.stdin) else subprocess.DEVNULL
    try:
        ended = subprocess.run(command, stdin=stdin, stdout=_output(), check=False)
    except OSError as error:
        return f"The editor {command[0]!r} cannot be started: {error.strerror}"
    if ended.returncode == 0:
        return None
    how = f"signal {-ended.returncode}" if ended.returncode < 0 else f"code {ended.returncode}"
    return f"The editor {command[0]!r} ended with {how}"


def _output() -> int | None:
    """The terminal; where a program reads stdout, nothing of an editor goes there."""
    return None if sys.stdout.isatty() else subprocess.DEVNULL


def read_back(path: Path, before: str) -> Edited | NotEdited:
    """The text as the editor left it. A pipe or a device would be read without an end."""
    if path.exists() and not path.is_file():
        return NotEdited(f"{str(path)!r} is a file no more. Nothing is judged.", failed=True)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return NotEdited(f"{str(path)!r} is no UTF-8 text, so nothing is judged.", failed=True)
    except OSError as error:
        why = error.strerror or str(error)
        return NotEdited(f"{str(path)!r} cannot be read: {why}. Nothing is judged.", failed=True)
    if not text.strip():
        return NotEdited("The file is empty: nothing is judged.", failed=False)
    if text.rstrip() == before.rstrip():
        return NotEdited("Nothing was changed: nothing is judged.", failed=False)
    return Edited(text, path)
