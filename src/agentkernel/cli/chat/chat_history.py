"""Which lines were typed in this session before?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import FileHistory, InMemoryHistory

FILE = "prompt_history"
MOST_CHARACTERS = 2000
"""A longer input is a paste: nobody wants it suggested."""


class SessionHistory(InMemoryHistory):
    """Lines for the arrow keys and suggestions, kept in the session folder once there is one.

    A line that cannot be written is still there until the end: it is a convenience, and a full
    disk is told of by what matters.
    """

    def __init__(self) -> None:
        super().__init__()
        self._file: FileHistory | None = None
        self._typed: list[str] = []

    def keep_in(self, folder: Path) -> None:
        """Read what `folder` has, and write to it from now on."""
        self._file = FileHistory(folder / FILE)
        for text in self._typed:
            self._write(text)

    def load_history_strings(self) -> Iterable[str]:
        """Newest first."""
        if self._file is None:
            return ()
        try:
            return list(self._file.load_history_strings())
        except OSError:
            return ()

    def store_string(self, string: str) -> None:
        """One more line."""
        if len(string) <= MOST_CHARACTERS:
            self._typed.append(string)
            self._write(string)

    def _write(self, text: str) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.store_string(text)
