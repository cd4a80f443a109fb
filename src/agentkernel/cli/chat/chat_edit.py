"""How is a candidate changed in the user's own editor?"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentkernel.cli.chat.chat_input import is_terminal
from agentkernel.domain.errors import OutputError
from agentkernel.storage.atomic import make_folder, write_atomic

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
