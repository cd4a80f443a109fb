"""What have the models of a run taken: tokens, money, time, by agent, by round and by model?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentkernel.domain.base import Frozen
from agentkernel.domain.exchange import Exchange


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


__all__ = ["Account", "Ledger", "totals"]
