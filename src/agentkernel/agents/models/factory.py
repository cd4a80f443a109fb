"""Which model does `chat:PROVIDER:MODEL` name, and how is it asked in a run?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from agentkernel.agents.models.chat import ChatModel, OnRetry, ignore_retry
from agentkernel.agents.models.local_presets import PREFIX, Prompt, parse_local
from agentkernel.agents.models.options import ChatOptions, packaged_options
from agentkernel.agents.models.prices import Prices, load_prices
from agentkernel.agents.models.protocol import LeftS, Model, ignore_text, no_deadline
from agentkernel.agents.models.recorded import (
    OnExchange,
    RecordedModel,
    ReplayedModel,
    ignore_exchange,
)
from agentkernel.agents.models.writing import OnPiece, ignore_piece
from agentkernel.agents.secrets import url_without_credentials
from agentkernel.domain.errors import SettingError
from agentkernel.domain.exchange import Exchange, Sampling
from agentkernel.storage.records import Records

if TYPE_CHECKING:
    from agentkernel.agents.models.local import LocalModel

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
    on_retry: OnRetry = ignore_retry,
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
    on_exchange: OnExchange = ignore_exchange
    on_retry: OnRetry = ignore_retry
    on_piece: OnPiece = ignore_piece
    """Hears what a model writes while it writes."""
    replay: Records | None = None
    said: Mapping[str, float] = field(default_factory=dict)
    """What the user says of every model's sampling, a tuned one's too."""
    left_s: LeftS = no_deadline
    """What is left of the run's time; no answer takes longer."""
    judge_key: str | None = None
    """The run's, by which what a model is told of verdicts can be replayed."""
    tell: Callable[[str], None] = ignore_text
    """Hears where rules stand in for a model, and why."""
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
        return own.model_copy(update=dict(self.said))

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


__all__ = ["MODELS", "ModelProvider", "ModelSpec", "make_model", "parse_model", "record_name"]
