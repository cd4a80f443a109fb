"""What is a model writing at this moment, told in few pieces that are safe to show?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from agentkernel.agents.models.protocol import ANEW, OnText
from agentkernel.agents.secrets import Redactor
from agentkernel.domain.exchange import AgentName, ModelRequest
from agentkernel.domain.plain_text import plain

EVERY_S = 0.1
"""Pieces that come faster are told as one."""


class TextPiece(NamedTuple):
    """New text of an answer. `characters`: of the answer so far, with this piece; as many as the
    piece has where the answer begins, or begins anew after a failed request."""

    agent: AgentName
    model: str
    round: int
    text: str
    characters: int


OnPiece = Callable[[TextPiece], None]
"""Hears what a model writes, at most every EVERY_S seconds and once more at its end."""


def ignore_piece(piece: TextPiece) -> None:
    """A listener that does nothing."""


@dataclass
class StreamedAnswer:
    """One answer while it comes, without keys and with control characters as escapes."""

    model: str
    question: ModelRequest
    tell: OnPiece
    _redactor: Redactor = field(default_factory=Redactor)
    _waiting: str = ""
    _characters: int = 0
    _told_at: float = float("-inf")

    def hear(self, text: str) -> None:
        """Take a piece in as the model's listener."""
        if text == ANEW:
            self._redactor, self._waiting, self._characters = Redactor(), "", 0
            return
        self._waiting += self._redactor.feed(text)
        if time.monotonic() - self._told_at >= EVERY_S:
            self._say()

    def end(self) -> None:
        """Tell what was held back."""
        self._waiting += self._redactor.rest()
        self._say()

    def _say(self) -> None:
        text, self._waiting = safe_to_show(self._waiting), ""
        if not text:
            return
        self._characters += len(text)
        self._told_at = time.monotonic()
        asked = self.question
        self.tell(TextPiece(asked.agent, self.model, asked.round, text, self._characters))


@contextmanager
def stream_pieces(
    model: str, question: ModelRequest, on_text: OnText, tell: OnPiece
) -> Iterator[OnText]:
    """Who hears the pieces of an answer, so that `tell` hears of them too; what was held back of
    one that failed is not told."""
    if tell is ignore_piece:
        yield on_text
        return
    writing = StreamedAnswer(model, question, tell)

    def both(text: str) -> None:
        on_text(text)
        writing.hear(text)

    yield both
    writing.end()


def safe_to_show(text: str) -> str:
    """`text` as any screen or log can take it: what steers a terminal, or hides or reorders what a
    person sees, stands there as an escape (`\\x1b`); a surrogate without its half is no character.
    """
    return plain(text.encode("utf-8", "replace").decode("utf-8"))


__all__ = [
    "EVERY_S",
    "OnPiece",
    "StreamedAnswer",
    "TextPiece",
    "ignore_piece",
    "safe_to_show",
    "stream_pieces",
]
