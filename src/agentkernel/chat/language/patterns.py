"""How is a pattern written at import and compiled when a sentence first needs it?"""

from __future__ import annotations

import re
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
