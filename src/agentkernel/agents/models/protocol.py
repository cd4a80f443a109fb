"""Protocol of a language model, its options, and its answer as it streams in.

Streamed text is passed on in few pieces, without secrets and with control characters escaped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Literal, NamedTuple, Protocol, TypeVar

import yaml
from pydantic import Field

from agentkernel.agents.safe_text import Redactor
from agentkernel.domain.base import Frozen
from agentkernel.domain.exchange import AgentName, ModelRequest, Reply, Sampling
from agentkernel.domain.plain_text import plain

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


def ignore(*heard: object) -> None:
    """A listener that does nothing."""


class Model(Protocol):
    """Answers one question at a time."""

    name: str
    """As written after `--coder`; part of every key, never a secret."""

    def ask(self, question: ModelRequest, on_text: OnText = ignore) -> Reply:
        """The answer to `question`. Raises ModelUnavailable with one clear line."""
        ...


Structured = Literal["auto", "json_schema", "tool", "text"]
"""How an answer is made to follow a schema; "auto": what the provider is known to take."""

Value = TypeVar("Value")


class ChatOptions(Frozen):
    """What every chat model is asked with; `configs/coders/chat.yaml` holds the packaged values."""

    temperature: float = Field(ge=0)
    top_p: float = Field(gt=0, le=1)
    max_tokens: int = Field(ge=1)
    samples: int = Field(ge=1)
    seed: int | None
    timeout_s: float = Field(gt=0)
    """Longest silence, before the first piece of an answer or between two."""
    attempts: int = Field(ge=1)
    """Requests for one answer, the first included."""
    wall_s: float = Field(gt=0)
    """Longest time for one answer, all attempts and waits together."""
    backoff_s: float = Field(ge=0)
    """Wait before the second attempt; doubled before each later one."""
    longest_wait_s: float = Field(ge=0)
    """Longest wait before an attempt, whatever Retry-After says."""
    structured: Structured
    send_sampling: bool
    """False for a model that takes no temperature and no top_p but its own."""
    stream_usage: bool
    """Ask an OpenAI-compatible endpoint to count tokens at the end of a stream."""
    limit_field: Literal["max_tokens", "max_completion_tokens"]
    """What an OpenAI-compatible endpoint of one's own calls the longest answer."""

    def sampling(self) -> Sampling:
        """The part that belongs to a question."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_tokens,
            samples=self.samples,
            seed=self.seed,
            timeout_s=self.timeout_s,
        )


def either(said: Value | None, own: Value) -> Value:
    """What the user said, `own` where nothing."""
    return own if said is None else said


@cache
def packaged_options() -> ChatOptions:
    """The values of `configs/coders/chat.yaml`."""
    text = resources.files("agentkernel.configs").joinpath("coders/chat.yaml").read_text("utf-8")
    return ChatOptions.model_validate(yaml.safe_load(text))


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
    if tell is ignore:
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
