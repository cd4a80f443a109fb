"""Which model is asked at this moment, and what have they all taken so far?"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentkernel.cli.rendering.quantities import show_count, show_span, show_usd
from agentkernel.domain.exchange import AgentName, Exchange
from agentkernel.workflows.events import Event, ModelAsked, ModelRetried, NodeFinished, NodeStarted

ASKS: dict[str, AgentName] = {"plan": "planner", "draft": "coder", "debug": "debugger"}
"""Who thinks in which node."""
AT_ONCE_S = 1.0
"""A shorter wait is not shown: a node may be at something else by then."""
WORDS = 80


@dataclass
class AgentUsage:
    """What one agent's model took; `reused` answers came from a record, at no cost."""

    answers: int = 0
    reused: int = 0
    prompt: int = 0
    completion: int = 0
    usd: float | None = None
    unpriced: int = 0
    seconds: float = 0.0

    def add(self, prompt: int, completion: int, usd: float | None, seconds: float) -> None:
        """Count an answer that was paid for."""
        self.answers += 1
        self.prompt += prompt
        self.completion += completion
        self.seconds += seconds
        if usd is None:
            self.unpriced += 1
        else:
            self.usd = (self.usd or 0.0) + usd


class PendingAnswer(NamedTuple):
    """A model that is being asked."""

    agent: str
    model: str
    since: float


class PendingRetry(NamedTuple):
    """A request that failed; the next one goes out at `due`."""

    retry: ModelRetried
    due: float


@dataclass
class ModelUsage:
    """What the events of models amount to. `names`: agent -> model, of those that have one."""

    names: Mapping[AgentName, str] = field(default_factory=dict)
    uses: dict[str, AgentUsage] = field(default_factory=dict)
    tokens_limit: int | None = None
    usd_limit: float | None = None
    replay: bool = False
    """The answers come from another run: nobody is waited for."""
    waiting: PendingAnswer | None = None
    again: PendingRetry | None = None

    def show(self, event: Event) -> None:
        """Take one event in."""
        match event:
            case NodeStarted():
                self._wait_for(ASKS.get(event.node))
            case NodeFinished():
                self.waiting = self.again = None
            case ModelAsked():
                self._answered(event)
            case ModelRetried():
                self.again = PendingRetry(event, time.monotonic() + event.wait_s)
            case _:
                pass

    def lines(self) -> list[RenderableType]:
        """The table of what was taken, and who is waited for; nothing where no model works."""
        shown: list[RenderableType] = [self._table()] if self.uses else []
        budget = self.budget_text()
        if budget and shown:
            shown.append(Text(budget))
        if self.waiting is not None:
            seconds = time.monotonic() - self.waiting.since
            if seconds >= AT_ONCE_S:
                who = f"{self.waiting.agent} waits for {self.waiting.model}"
                shown.append(Text(f"{who}: {show_span(seconds)}"))
        if self.again is not None:
            shown.append(Text(retry_text(self.again)))
        return shown

    def budget_text(self) -> str:
        """How much of the budgets is spent; "" where there is none."""
        all_ = total_usage([*self.uses.values()])
        parts = []
        if self.tokens_limit is not None:
            spent = show_count(all_.prompt + all_.completion)
            parts.append(f"{spent} of {show_count(self.tokens_limit)} tokens")
        if self.usd_limit is not None:
            parts.append(f"{show_usd(all_.usd or 0.0)} of {self.usd_limit:g} USD")
        return f"budget  {', '.join(parts)}" if parts else ""

    def _wait_for(self, agent: AgentName | None) -> None:
        self.again = None
        model = self.names.get(agent) if agent is not None and not self.replay else None
        self.waiting = PendingAnswer(str(agent), model, time.monotonic()) if model else None

    def _answered(self, event: ModelAsked) -> None:
        use = self.uses.setdefault(event.agent, AgentUsage())
        if event.reused:
            use.reused += 1
        else:
            use.add(event.prompt_tokens, event.completion_tokens, event.cost_usd, event.seconds)
        self.again = None
        if self.waiting is not None:
            # The same node may ask a second time, where the first answer could not be read.
            self.waiting = self.waiting._replace(since=time.monotonic())

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, expand=False)
        table.add_column("models")
        kept = any(use.reused for use in self.uses.values())
        third = ["from the record"] if kept else []
        for heading in ("answers", *third, "tokens in", "out", "USD", "seconds"):
            table.add_column(heading, justify="right")
        rows = [*self.uses.items()]
        if len(rows) > 1:
            rows.append(("total", total_usage([use for _, use in rows])))
        for name, use in rows:
            table.add_row(
                name,
                str(use.answers),
                *([str(use.reused)] if kept else []),
                show_count(use.prompt),
                show_count(use.completion),
                show_usd(use.usd, use.unpriced) if use.answers else "-",
                f"{use.seconds:.1f}",
            )
        return table


def total_usage(uses: Sequence[AgentUsage]) -> AgentUsage:
    """All of them together."""
    known = [use.usd for use in uses if use.usd is not None]
    return AgentUsage(
        answers=sum(use.answers for use in uses),
        reused=sum(use.reused for use in uses),
        prompt=sum(use.prompt for use in uses),
        completion=sum(use.completion for use in uses),
        usd=sum(known) if known else None,
        unpriced=sum(use.unpriced for use in uses),
        seconds=sum(use.seconds for use in uses),
    )


def usage_of(exchanges: Sequence[Exchange]) -> dict[str, AgentUsage]:
    """What earlier sessions took, by agent."""
    uses: dict[str, AgentUsage] = {}
    for item in exchanges:
        usage = item.reply.usage
        use = uses.setdefault(item.question.agent, AgentUsage())
        use.add(usage.prompt, usage.completion, item.cost_usd, item.reply.seconds)
    return uses


def retry_text(again: PendingRetry) -> str:
    """The failure on one line, and when the next request goes out."""
    retry, left = again.retry, again.due - time.monotonic()
    following = f"request {retry.attempt + 1}"
    when = f"{following} in {show_span(left + 0.99)}" if left > 0 else f"{following} is under way"
    happened = retry.failure.replace("_", " ")
    said = " ".join(retry.text.split())[:WORDS]
    return f"{retry.model}: {happened}, {when}: {said}"
