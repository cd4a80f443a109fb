"""Was a model asked this before? Then the record answers, and the model is left alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from agentkernel.agents.models.chat import CountedReply
from agentkernel.agents.models.prices import Prices, cost_of
from agentkernel.agents.models.protocol import Model, OnText, ignore_text
from agentkernel.agents.models.writing import OnPiece, ignore_piece, stream_pieces
from agentkernel.domain.errors import EnvironmentFailure, ModelUnavailable, NotRecorded
from agentkernel.domain.exchange import Exchange, ModelRequest, Reply
from agentkernel.storage.records import Records

OnExchange = Callable[[Exchange, bool], None]
"""Hears each exchange; the second value is True where it came from the record."""


@runtime_checkable
class CountingModel(Protocol):
    """A model that knows how many requests an answer took."""

    def ask_counted(
        self, question: ModelRequest, on_text: OnText = ignore_text
    ) -> CountedReply: ...


def ignore_exchange(exchange: Exchange, reused: bool) -> None:
    """A listener that does nothing."""


class KeyLocks:
    """A lock a key: who asks what is just being asked waits for that answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def of(self, key: str) -> AbstractContextManager[bool]:
        """The lock of `key`."""
        with self._lock:
            return self._locks.setdefault(key, threading.Lock())


@dataclass
class RecordedModel:
    """Keeps every answer of `model` in `records` before anyone sees it, and asks nothing twice."""

    model: Model
    records: Records
    prices: Prices = field(default_factory=Prices)
    on_exchange: OnExchange = ignore_exchange
    priced_as: str = ""
    """Name in the price table; "" for the model's own."""
    on_piece: OnPiece = ignore_piece
    """Hears what the model writes; an answer from the record is not written again."""
    name: str = field(init=False)
    _turns: KeyLocks = field(default_factory=KeyLocks)

    def __post_init__(self) -> None:
        self.name = self.model.name

    def ask(self, question: ModelRequest, on_text: OnText = ignore_text) -> Reply:
        """The recorded answer, else the model's. Raises ModelUnavailable."""
        key = question.key(self.name)
        with self._turns.of(key):
            kept = self.records.exchange(key)
            exchange = self._asked(key, question, on_text) if kept is None else kept
        if kept is not None and kept.reply.texts:
            on_text(kept.reply.texts[0])
        self.on_exchange(exchange, kept is not None)
        return exchange.reply

    def _asked(self, key: str, question: ModelRequest, on_text: OnText) -> Exchange:
        model = self.model
        try:
            with stream_pieces(self.name, question, on_text, self.on_piece) as hear:
                counted = (
                    model.ask_counted(question, hear)
                    if isinstance(model, CountingModel)
                    else CountedReply(model.ask(question, hear), 1)
                )
        except EnvironmentFailure as error:
            self.records.save_silence(key, str(error))
            raise
        exchange = Exchange(
            model=self.name,
            question=question,
            reply=counted.reply,
            cost_usd=cost_of(counted.reply.usage, self.priced_as or self.name, self.prices),
            attempts=counted.attempts,
        )
        self.records.save_exchange(key, exchange)
        return exchange


@dataclass
class ReplayedModel:
    """Answers from the records of another run alone: no model, no network, no key.

    A question that was not asked word for word has the answer to the first one, not given yet, that
    differs from it in figures only: what is measured again comes out a little different. `into` are
    the records of the run that is going on: its report and its own replay need them.
    """

    name: str
    records: Records
    on_exchange: OnExchange = ignore_exchange
    into: Records | None = None
    _given: set[str] = field(default_factory=set)

    def ask(self, question: ModelRequest, on_text: OnText = ignore_text) -> Reply:
        """The recorded answer. Raises ModelUnavailable where the model gave none then, NotRecorded
        where it was not asked this."""
        key = question.key(self.name)
        kept = self.records.exchange(key)
        silent = self.records.silence(key) if kept is None else None
        if silent is not None:
            raise ModelUnavailable(silent)
        kept = kept or self._alike(question)
        if kept is not None:
            self._given.add(kept.question.key(self.name))
        if kept is None:
            run = self.records.path.parent.name
            raise NotRecorded(
                f"Run {run!r} holds no answer of {self.name!r} to this question of the "
                f"{question.agent} in round {question.round}. Expected the same problem, settings "
                "and version as in that run. Next: leave --replay out to ask the model."
            )
        if self.into is not None:
            self.into.save_exchange(key, kept)
        if kept.reply.texts:
            on_text(kept.reply.texts[0])
        self.on_exchange(kept, True)
        return kept.reply

    def _alike(self, question: ModelRequest) -> Exchange | None:
        outline = question.outline(self.name)
        return next(
            (
                item
                for item in self.records.exchanges()
                if item.model == self.name
                and item.question.outline(self.name) == outline
                and item.question.key(self.name) not in self._given
            ),
            None,
        )


__all__ = ["CountingModel", "OnExchange", "RecordedModel", "ReplayedModel"]
