"""What must a model be able to do, wherever it runs?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from agentkernel.domain.exchange import ModelRequest, Reply

OnText = Callable[[str], None]
"""Hears each piece of the first sample's text as it comes, and ANEW where it is to forget them."""
ANEW = ""
"""The request failed in the middle of its answer: the next piece begins another one."""

LeftS = Callable[[], float]
"""Seconds that the run still has for an answer."""

LEAST_S = 1.0
"""An answer gets this long in any case."""


def no_deadline() -> float:
    """Nobody waits for the run."""
    return float("inf")


def ignore_text(text: str) -> None:
    """A listener that does nothing."""


class Model(Protocol):
    """Answers one question at a time."""

    name: str
    """As written after `--coder`; part of every key, never a secret."""

    def ask(self, question: ModelRequest, on_text: OnText = ignore_text) -> Reply:
        """The answer to `question`. Raises ModelUnavailable with one clear line."""
        ...
