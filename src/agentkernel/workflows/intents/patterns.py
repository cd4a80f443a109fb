"""How is a pattern written at import and compiled when a sentence first needs it?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property


class Pattern:
    """A regular expression that is compiled on first use: the prompt does not wait for it."""

    def __init__(self, text: str, flags: int = 0) -> None:
        self._text, self._flags = text, flags

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self._text, self._flags)

    def match(self, text: str, at: int = 0) -> re.Match[str] | None:
        """As `re.Pattern.match`."""
        return self._compiled.match(text, at)

    def search(self, text: str, at: int = 0) -> re.Match[str] | None:
        """As `re.Pattern.search`."""
        return self._compiled.search(text, at)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """As `re.Pattern.fullmatch`."""
        return self._compiled.fullmatch(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """As `re.Pattern.finditer`."""
        return self._compiled.finditer(text)

    def sub(self, to: str, text: str) -> str:
        """As `re.Pattern.sub`."""
        return self._compiled.sub(to, text)

    def split(self, text: str) -> list[str | None]:
        """As `re.Pattern.split`."""
        return list(self._compiled.split(text))
