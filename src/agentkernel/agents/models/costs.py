"""Cost of answers by the user's prices or the providers' lists, and a run's totals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import yaml
from pydantic import Field, ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import SettingError, one_line
from agentkernel.domain.exchange import Exchange, Usage
from agentkernel.storage.configuration import read_yaml, user_config_path

MILLION = 1_000_000


class Price(Frozen):
    """USD per million tokens for the models whose names `model` matches."""

    model: str
    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached: float | None = Field(default=None, ge=0)
    """None: as input."""
    most_prompt: int | None = None
    """Tokens of the longest prompt that has this price."""


class Prices(Frozen):
    """The user's own prices, before the providers' lists; the first entry that matches holds."""

    prices: tuple[Price, ...] = ()

    def of(self, model: str) -> Price | None:
        """The price of `model` (`chat:PROVIDER:MODEL`, with @URL behind an endpoint of one's own).

        An endpoint of one's own does not charge what the provider charges: only a pattern with an
        @ holds for it.
        """
        name = model.removeprefix("chat:")
        fitting = (item for item in self.prices if ("@" in item.model) == ("@" in name))
        return next((item for item in fitting if fnmatchcase(name, item.model)), None)


def cost_of(usage: Usage, model: str, prices: Prices) -> float | None:
    """USD for `usage`; None where no price is known, or no token was counted."""
    if not (usage.prompt or usage.completion):
        return None
    price = prices.of(model)
    if price is None:
        return _listed_cost(usage, model)
    if price.most_prompt is not None and usage.prompt > price.most_prompt:
        return None
    cached = price.input if price.cached is None else price.cached
    fresh = usage.prompt - usage.cached
    return (fresh * price.input + usage.cached * cached + usage.completion * price.output) / MILLION


def _listed_cost(usage: Usage, model: str) -> float | None:
    """USD by the copy of the providers' price lists in `genai-prices`: it asks no network. None at
    an endpoint of one's own, which no list prices."""
    import genai_prices

    provider, _, name = model.removeprefix("chat:").partition(":")
    if "@" in name:
        return None
    counted = genai_prices.Usage(
        input_tokens=usage.prompt,
        cache_read_tokens=min(usage.cached, usage.prompt),
        output_tokens=usage.completion,
    )
    try:
        return float(genai_prices.calc_price(counted, name, provider_id=provider).total_price)
    except LookupError:
        return None


def unpriced(model: str) -> str:
    """One line that says how a model gets its price."""
    name = model.removeprefix("chat:")
    return (
        f"No price is known for {name!r}: its cost is not counted. "
        f"Next: name it in {str(user_prices_path())!r}."
    )


def user_prices_path() -> Path:
    """`prices.yaml` beside the user's configuration."""
    return user_config_path().with_name("prices.yaml")


def load_prices(path: Path | None = None) -> Prices:
    """The user's prices: those of `path`, else of the usual place if it is there.

    Raises SettingError for a file that is no price table.
    """
    own = path or user_prices_path()
    if path is None and not own.is_file():
        return Prices()
    try:
        return Prices.model_validate(read_yaml(own) or {})
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError) as error:
        raise SettingError(
            f"The prices {str(own)!r} cannot be read: {one_line(error)}. Expected e.g. "
            "'prices: [{model: \"openai:my-model@*\", input: 1.0, output: 2.0}]'."
        ) from error


class Account(Frozen):
    """What some exchanges took together."""

    label: str
    questions: int = 0
    requests: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cost_usd: float | None = None
    """The sum of the known costs; None where none is known."""
    unpriced: int = 0
    """Questions whose cost is not known: with any, `cost_usd` is a lower bound."""
    seconds: float = 0.0
    gpu_seconds: float = 0.0


class Ledger(Frozen):
    """A run's accounts, each in the order of first use (rounds in theirs)."""

    by_agent: tuple[Account, ...]
    by_round: tuple[Account, ...]
    by_model: tuple[Account, ...]
    total: Account


def totals(exchanges: Sequence[Exchange]) -> Ledger:
    """The accounts of `exchanges`."""
    by_round = sorted(exchanges, key=lambda item: item.question.round)
    return Ledger(
        by_agent=_grouped(exchanges, lambda item: item.question.agent),
        by_round=_grouped(by_round, lambda item: str(item.question.round)),
        by_model=_grouped(exchanges, lambda item: item.model),
        total=_account("total", exchanges),
    )


def _grouped(
    exchanges: Sequence[Exchange], label: Callable[[Exchange], str]
) -> tuple[Account, ...]:
    groups: dict[str, list[Exchange]] = {}
    for item in exchanges:
        groups.setdefault(label(item), []).append(item)
    return tuple(_account(name, items) for name, items in groups.items())


def _account(label: str, exchanges: Sequence[Exchange]) -> Account:
    known = [item.cost_usd for item in exchanges if item.cost_usd is not None]
    replies = [item.reply for item in exchanges]
    return Account(
        label=label,
        questions=len(exchanges),
        requests=sum(item.attempts for item in exchanges),
        prompt=sum(item.usage.prompt for item in replies),
        completion=sum(item.usage.completion for item in replies),
        cached=sum(item.usage.cached for item in replies),
        cost_usd=sum(known) if known else None,
        unpriced=len(exchanges) - len(known),
        seconds=sum(item.seconds for item in replies),
        gpu_seconds=sum(item.gpu_seconds for item in replies),
    )
