"""What do the models of a run say for themselves in its report: cost, calibration, diagnoses?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentkernel.domain.base import Frozen
from agentkernel.domain.plain_text import plain_line
from agentkernel.domain.plan import Calibration

NO_PRICE = "no price known"
RULES = "the rules"
MARKUP = {"|": "/", "`": "'", "<": "‹", "](": "] ("}
"""What would end a cell, or be a tag, a link or a picture; models write some of the texts."""


class UsageTotals(Frozen):
    """What some questions took together. `cost_usd` is the sum of the known costs, None where none
    is known; `unpriced` counts the questions whose cost is not."""

    label: str
    questions: int = 0
    requests: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cost_usd: float | None = None
    unpriced: int = 0
    seconds: float = 0.0
    gpu_seconds: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.prompt + self.completion


class DiagnosisEntry(Frozen):
    """What was made of a refused candidate, and by whom: a model's name, "" for the rules."""

    candidate: str
    round: int
    failure_class: str
    action: str
    advice: str
    by: str = ""


class ModelsSection(Frozen):
    """All that the report tells of the models that were asked."""

    by_agent: tuple[UsageTotals, ...]
    by_round: tuple[UsageTotals, ...]
    by_model: tuple[UsageTotals, ...]
    total: UsageTotals
    unpriced: tuple[str, ...] = ()
    """A line for each model whose cost is not known."""
    calibration: tuple[Calibration, ...] = ()
    diagnoses: tuple[DiagnosisEntry, ...] = ()
    replayed: str | None = None
    """The run whose answers were given again."""
    passed_over: tuple[str, ...] = ()
    """Where rules stood in for a model, and why."""


class UsageRow(NamedTuple):
    """A line of the tables."""

    label: str
    questions: str
    requests: str
    prompt: str
    completion: str
    cached: str
    cost: str
    seconds: str
    gpu_seconds: str


def usage_rows(accounts: Sequence[UsageTotals], total: UsageTotals) -> list[UsageRow]:
    """The lines of one table, the total as the last."""
    return [usage_row(item) for item in (*accounts, total)]


def usage_row(account: UsageTotals) -> UsageRow:
    """One line. Tokens that nobody counted are a dash, not 0."""
    counted = account.tokens > 0
    return UsageRow(
        label=cell(account.label),
        questions=str(account.questions),
        requests=str(account.requests),
        prompt=count_text(account.prompt) if counted else "–",
        completion=count_text(account.completion) if counted else "–",
        cached=count_text(account.cached) if counted else "–",
        cost=usd_text(account.cost_usd, account.unpriced),
        seconds=f"{account.seconds:.1f}",
        gpu_seconds=f"{account.gpu_seconds:.1f}" if account.gpu_seconds else "–",
    )


def calibration_line(found: Calibration) -> str:
    """How often the expectations of one who predicts held."""
    who = found.predicted_by or RULES
    held = f"{found.within} of {found.predictions} expectations held"
    ratio = "" if found.ratio is None else f"; measured / predicted time {found.ratio:.2f}×"
    return f"{who}: {held} (measured no slower than predicted, but for a tenth){ratio}"


def diagnosis_cells(found: DiagnosisEntry) -> tuple[str, ...]:
    """The cells of one diagnosis."""
    action = found.action.replace("_", " ")
    who = found.by or RULES
    return tuple(
        cell(text)
        for text in (
            found.candidate, str(found.round), who, found.failure_class, action, found.advice
        )
    )  # fmt: skip


def count_text(count: int) -> str:
    """`12,340`."""
    return f"{count:,}"


def usd_text(cost_usd: float | None, unpriced: int) -> str:
    """`0.0123`, `at least 0.0123` where some of it has no price, or that none is known."""
    if cost_usd is None:
        return NO_PRICE
    text = f"{cost_usd:.4f}" if cost_usd >= 0.001 or cost_usd == 0 else f"{cost_usd:.2g}"
    return f"at least {text}" if unpriced else text


def cell(text: str) -> str:
    """`text` as plain words: it stays in its cell of a Markdown table, and is no markup there."""
    text = plain_line(" ".join(text.split()))
    for mark, instead in MARKUP.items():
        text = text.replace(mark, instead)
    return text


__all__ = [
    "DiagnosisEntry",
    "ModelsSection",
    "UsageTotals",
    "calibration_line",
    "cell",
    "count_text",
    "diagnosis_cells",
    "usage_rows",
    "usd_text",
]


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    for row in rows:
        cells = (" ".join(cell.replace("|", "/").split()) for cell in row)
        lines.append(f"| {' | '.join(cells)} |")
    return lines
