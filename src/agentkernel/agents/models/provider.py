"""Models by name (`chat:PROVIDER:MODEL`, `local:NAME`), with recording and replay of answers.

Every answer is recorded before anyone sees it, and no question is asked twice. A replay answers
from the records of another run alone: no model, no network, no key.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from agentkernel.agents.models.chat import ChatModel, OnRetry
from agentkernel.agents.models.costs import Prices, cost_of, load_prices
from agentkernel.agents.models.local_presets import PREFIX, Prompt, parse_local
from agentkernel.agents.models.protocol import (
    ChatOptions,
    LeftS,
    Model,
    OnPiece,
    OnText,
    either,
    ignore,
    no_deadline,
    packaged_options,
    stream_pieces,
)
from agentkernel.agents.safe_text import url_without_credentials
from agentkernel.domain.errors import (
    EnvironmentFailure,
    ModelUnavailable,
    NotRecorded,
    SettingError,
)
from agentkernel.domain.exchange import Exchange, ModelRequest, Reply, Sampling
from agentkernel.domain.settings import ModelOptions
from agentkernel.storage.records import Records

if TYPE_CHECKING:
    from agentkernel.agents.models.local import LocalModel


OnExchange = Callable[[Exchange, bool], None]
"""Hears each exchange; the second value is True where it came from the record."""


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
    on_exchange: OnExchange = ignore
    priced_as: str = ""
    """Name in the price table; "" for the model's own."""
    on_piece: OnPiece = ignore
    """Hears what the model writes; an answer from the record is not written again."""
    name: str = field(init=False)
    _turns: KeyLocks = field(default_factory=KeyLocks)

    def __post_init__(self) -> None:
        self.name = self.model.name

    def ask(self, question: ModelRequest, on_text: OnText = ignore) -> Reply:
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
        try:
            with stream_pieces(self.name, question, on_text, self.on_piece) as hear:
                reply = self.model.ask(question, hear)
        except EnvironmentFailure as error:
            self.records.save_silence(key, str(error))
            raise
        exchange = Exchange(
            model=self.name,
            question=question,
            reply=reply,
            cost_usd=cost_of(reply.usage, self.priced_as or self.name, self.prices),
            attempts=reply.attempts,
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
    on_exchange: OnExchange = ignore
    into: Records | None = None
    _given: set[str] = field(default_factory=set)

    def ask(self, question: ModelRequest, on_text: OnText = ignore) -> Reply:
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


CHAT = "chat:"
MODELS = "chat:PROVIDER:MODEL[@URL] or local:NAME_OR_PATH[+ADAPTER]"


class ModelSpec(NamedTuple):
    """A model's name, and its endpoint where it is one of one's own."""

    name: str
    base_url: str | None

    @property
    def priced_as(self) -> str:
        """Its name in the price table."""
        return (
            f"{self.name}@{url_without_credentials(self.base_url)}" if self.base_url else self.name
        )


def parse_model(spec: str, base_url: str | None = None) -> ModelSpec:
    """`chat:PROVIDER:MODEL` or `chat:PROVIDER:MODEL@URL`; a URL in `spec` goes before `base_url`.

    Raises SettingError.
    """
    text, _, url = spec.removeprefix(CHAT).partition("@")
    provider, _, model = text.partition(":")
    if not provider or not model:
        raise SettingError(
            f"Coder {CHAT + text!r} names no model. Expected chat:PROVIDER:MODEL, "
            "such as chat:openai:gpt-5, with @URL behind it for an endpoint of your own."
        )
    endpoint = url or base_url or None
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise SettingError(
            f"Endpoint {url_without_credentials(endpoint)!r} is no URL. Expected e.g. http://127.0.0.1:8000/v1."
        )
    return ModelSpec(CHAT + text, endpoint)


def make_model(
    spec: str,
    base_url: str | None = None,
    options: ChatOptions | None = None,
    on_retry: OnRetry = ignore,
    left_s: LeftS = no_deadline,
) -> ChatModel:
    """The model that `spec` names. Raises SettingError."""
    found = parse_model(spec, base_url)
    return ChatModel(found.name, found.base_url, options or packaged_options(), on_retry, left_s)


@dataclass(frozen=True)
class ModelProvider:
    """Where a run's agents get their models: recorded ones, or those of a run to replay. Weights
    that one of them loads are shared by all who name the same; `close` lets go of them.

    `records` None: nobody keeps the answers.
    """

    records: Records | None = None
    base_url: str | None = None
    options: ChatOptions = field(default_factory=packaged_options)
    prices: Prices = field(default_factory=load_prices)
    on_exchange: OnExchange = ignore
    on_retry: OnRetry = ignore
    on_piece: OnPiece = ignore
    """Hears what a model writes while it writes."""
    replay: Records | None = None
    said: ModelOptions = field(default_factory=ModelOptions)
    """What the user says of every model's sampling, a tuned one's too: temperature, max_tokens."""
    left_s: LeftS = no_deadline
    """What is left of the run's time; no answer takes longer."""
    judge_key: str | None = None
    """The run's, by which what a model is told of verdicts can be replayed."""
    tell: Callable[[str], None] = ignore
    """Hears where rules stand in for a model, and why."""
    note: Callable[[str], None] = ignore
    """Hears what is worth a line and changes nothing."""
    _loaded: dict[str, LocalModel] = field(default_factory=dict)

    def model(self, spec: str) -> Model:
        """The model that `spec` names, asked through the records. Raises SettingError."""
        named = record_name(spec, self.base_url)
        if self.replay is not None:
            return ReplayedModel(named.name, self.replay, self.on_exchange, into=self.records)
        asked = self._asked(spec)
        if self.records is None:
            return asked
        return RecordedModel(
            asked,
            self.records,
            self.prices,
            self.on_exchange,
            priced_as=named.priced_as,
            on_piece=self.on_piece,
        )

    def sampling(self, spec: str) -> Sampling:
        """How the model that `spec` names is asked: a tuned one as it was taught."""
        if not spec.startswith(PREFIX):
            return self.options.sampling()
        preset = parse_local(spec)
        own = preset.sampling(self.options.samples, self.options.seed)
        return own.evolve(
            temperature=either(self.said.temperature, own.temperature),
            max_tokens=either(self.said.max_tokens, own.max_tokens),
        )

    def prompt(self, spec: str) -> Prompt:
        """The prompt file that asks it for a first draft."""
        return parse_local(spec).prompt if spec.startswith(PREFIX) else "coder"

    def answered(self) -> tuple[Exchange, ...]:
        """The exchanges of this run's earlier sessions."""
        return self.records.exchanges() if self.records is not None else ()

    def close(self) -> None:
        """Free the memory of models in this process, and let go of the run that is replayed."""
        for model in self._loaded.values():
            model.release()
        self._loaded.clear()
        if self.replay is not None:
            self.replay.close()

    def _asked(self, spec: str) -> Model:
        if not spec.startswith(PREFIX):
            return make_model(spec, self.base_url, self.options, self.on_retry, self.left_s)
        if spec not in self._loaded:
            from agentkernel.agents.models.local import LocalModel

            self._loaded[spec] = LocalModel(spec, left_s=self.left_s)
        return self._loaded[spec]


def record_name(spec: str, base_url: str | None = None) -> ModelSpec:
    """What a model is called in records and prices. Raises SettingError."""
    if spec.startswith(PREFIX):
        parse_local(spec)
        return ModelSpec(spec, None)
    if spec.startswith(CHAT):
        return parse_model(spec, base_url)
    raise SettingError(f"Unknown model {spec!r}. Expected {MODELS}.")
