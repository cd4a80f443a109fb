"""Which model does `chat:PROVIDER:MODEL` name, and how is it asked in a run?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from agentkernel.agents.models.chat import ChatModel, OnRetry, unheeded
from agentkernel.agents.models.options import ChatOptions, packaged_options
from agentkernel.agents.models.prices import Prices, load_prices
from agentkernel.agents.models.protocol import Model
from agentkernel.agents.models.recorded import OnExchange, RecordedModel, ReplayedModel, unnoted
from agentkernel.agents.models.secrets import shown_url
from agentkernel.domain.exchange import Exchange
from agentkernel.errors import SettingError
from agentkernel.tools.records import Records

CHAT = "chat:"


class ModelSpec(NamedTuple):
    """A model's name, and its endpoint where it is one of one's own."""

    name: str
    base_url: str | None

    @property
    def priced_as(self) -> str:
        """Its name in the price table."""
        return f"{self.name}@{shown_url(self.base_url)}" if self.base_url else self.name


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
            f"Endpoint {shown_url(endpoint)!r} is no URL. Expected e.g. http://127.0.0.1:8000/v1."
        )
    return ModelSpec(CHAT + text, endpoint)


def make_model(
    spec: str,
    base_url: str | None = None,
    options: ChatOptions | None = None,
    on_retry: OnRetry = unheeded,
) -> ChatModel:
    """The model that `spec` names. Raises SettingError."""
    found = parse_model(spec, base_url)
    return ChatModel(found.name, found.base_url, options or packaged_options(), on_retry)


@dataclass(frozen=True)
class Desk:
    """Where a run's agents get their models: recorded ones, or those of a run to replay."""

    records: Records
    base_url: str | None = None
    options: ChatOptions = field(default_factory=packaged_options)
    prices: Prices = field(default_factory=load_prices)
    on_exchange: OnExchange = unnoted
    on_retry: OnRetry = unheeded
    replay: Records | None = None

    def model(self, spec: str) -> Model:
        """The model that `spec` names, asked through the records. Raises SettingError."""
        found = parse_model(spec, self.base_url)
        if self.replay is not None:
            return ReplayedModel(found.name, self.replay, self.on_exchange, into=self.records)
        asked = make_model(spec, self.base_url, self.options, self.on_retry)
        return RecordedModel(
            asked, self.records, self.prices, self.on_exchange, priced_as=found.priced_as
        )

    def answered(self) -> tuple[Exchange, ...]:
        """The exchanges of this run's earlier sessions."""
        return self.records.exchanges()


__all__ = ["Desk", "ModelSpec", "make_model", "parse_model"]
