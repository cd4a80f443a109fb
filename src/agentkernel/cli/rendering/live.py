"""Live progress of a run: one row for each candidate, model usage, and the answer being written."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from agentkernel.cli.rendering.text import (
    show_count,
    show_ratio,
    show_share,
    show_span,
    show_us,
    show_usd,
)
from agentkernel.cli.terminal import SILENCE_S, ElapsedTime, stderr_columns
from agentkernel.domain.exchange import AgentName, Exchange
from agentkernel.runtime.stages import StageClock, current, recording
from agentkernel.workflows.events import (
    ApprovalAsked,
    ApprovalGiven,
    CandidateDrafted,
    CandidateSetAside,
    Decided,
    Diagnosed,
    Event,
    ModelAsked,
    ModelPassedOver,
    ModelRetried,
    ModelWriting,
    NodeFinished,
    NodeStarted,
    Noted,
    Planned,
    ProfileTaken,
    RemoteProgress,
    RunStarted,
    VerdictReached,
)

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


LINES = 6
KEPT = 2_000
"""Characters that are kept for these lines."""
INDENT = 2


@dataclass
class LiveWriting:
    """The end of an answer that is still being written; any other event means that it is over."""

    who: str = ""
    characters: int = 0
    tail: str = ""

    def show(self, event: Event) -> None:
        """Take one event in."""
        if not isinstance(event, ModelWriting):
            self.end()
            return
        begins = event.characters == len(event.text)
        self.who, self.characters = event.agent, event.characters
        before = "" if begins else self.tail
        self.tail = (before + event.text)[-KEPT:]

    def end(self) -> None:
        """Nobody writes."""
        self.who, self.characters, self.tail = "", 0, ""

    def lines(self) -> list[RenderableType]:
        """Who writes how much, and its last lines; nothing where nobody does."""
        if not self.who:
            return []
        head = Text(f"{self.who} writes: {show_count(self.characters)} characters")
        return [head, Padding(LastLines(self.tail), (0, 0, 0, INDENT))]


@dataclass(frozen=True)
class LastLines:
    """The last LINES lines of a text as it falls into the width at hand."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        text = Text(self.text.rstrip().expandtabs(4), style="dim")
        yield from text.wrap(console, options.max_width)[-LINES:]


@dataclass
class CandidateRow:
    """One candidate's line."""

    round: int
    candidate: str
    gate: str = "drafted"
    time: str = "-"
    vs_eager: str = "-"
    vs_compile: str = "-"
    vs_autotune: str = "-"
    roofline: str = "-"


def node_words(event: NodeStarted) -> str:
    """`round 1: judge`."""
    return f"round {event.round}: {event.node}"


def progress_words(doing: str, seconds: float, at: str) -> str:
    """`round 1: judge, 62 s: 12 of 35 cases`; a stage of the same name is not said twice."""
    node = doing.rpartition(" ")[2]
    at = at.removeprefix(node).lstrip(": ")
    return f"{doing}, {seconds:.0f} s" + (f": {at}" if at else "")


@dataclass
class RunProgress:
    """What the events so far amount to; `show` takes them in the order in which they come."""

    rows: list[CandidateRow] = field(default_factory=list)
    heading: str = ""
    node: str = "preparing the run"
    node_began: float = field(default_factory=time.monotonic)
    stages: StageClock | None = None
    """What knows how far the node is."""
    note: str = ""
    remote: str = ""
    """What another machine does for the run now."""
    time_limit_s: float | None = None
    began: float = field(default_factory=time.monotonic)
    spent_before_s: float = 0.0
    models: ModelUsage = field(default_factory=ModelUsage)
    writing: LiveWriting = field(default_factory=LiveWriting)

    def show(self, event: Event) -> None:
        """Take one event in."""
        self.models.show(event)
        self.writing.show(event)
        self.stages = current()
        match event:
            case RunStarted():
                again = "again " if event.resumed else ""
                self.heading = f"{event.problem} for {event.target} {again}({event.run})"
                self.note = "; ".join((event.note, *event.warnings))
                self.time_limit_s = event.time_limit_s
                self.spent_before_s = event.spent_s
            case NodeStarted():
                self.node, self.node_began = node_words(event), time.monotonic()
            case NodeFinished():
                self.node = self.remote = ""
            case Planned():
                first = event.plan.hypotheses[0].strategy if event.plan.hypotheses else "nothing"
                self.note = f"plan: {first}, bound by {event.plan.analysis.roofline}"
            case CandidateDrafted():
                self._drafted(event)
            case CandidateSetAside():
                self.row(event.candidate, event.round).gate = f"set aside: {event.reason}"
            case VerdictReached():
                gate = (
                    "accepted"
                    if event.accepted
                    else event.undecided or f"{event.gate}: {event.failure or 'refused'}"
                )
                self.row(event.candidate, event.round).gate = (
                    f"{gate} (interpreted)" if event.interpreted else gate
                )
            case ProfileTaken():
                self._profiled(event)
            case Diagnosed():
                self.note = f"{event.failure_class}: {event.advice}"
            case Decided():
                self.note = event.stop or event.reason
            case ModelPassedOver() | Noted():
                self.note = event.text
            case RemoteProgress():
                self.remote = f"{event.host}: {event.text}"
            case ModelAsked() | ModelRetried() | ModelWriting() | ApprovalGiven():
                pass
            case _:
                self.node = ""

    def row(self, candidate: str, round_: int) -> CandidateRow:
        """The candidate's line, a new one where it has none."""
        short = candidate[:10]
        found = next((item for item in self.rows if item.candidate == short), None)
        if found is None:
            found = CandidateRow(round_, short)
            self.rows.append(found)
        return found

    def time_left(self) -> str:
        """Seconds to the limit, or the seconds spent where there is none."""
        spent = self.spent_before_s + time.monotonic() - self.began
        if self.time_limit_s is None:
            return f"{show_span(spent)} spent"
        return f"{show_span(max(0.0, self.time_limit_s - spent))} left"

    def doing(self) -> str:
        """The node that works, for how long, and how far it is; "" between two."""
        if not self.node:
            return ""
        at = self.stages.doing if self.stages is not None else ""
        return progress_words(self.node, time.monotonic() - self.node_began, at)

    def _drafted(self, event: CandidateDrafted) -> None:
        if event.candidate is None:
            self.rows.append(CandidateRow(event.round, "-", event.reason or "nothing to offer"))
        else:
            self.row(event.candidate, event.round)
            self.note = f"{event.coder}: {event.strategy}"

    def _profiled(self, event: ProfileTaken) -> None:
        row = self.row(event.candidate, event.round)
        if event.measured:
            row.time = show_us(event.time_us)
            row.vs_eager = show_ratio(event.speedup_vs_eager)
            row.vs_compile = show_ratio(event.speedup_vs_compile)
            row.vs_autotune = show_ratio(event.speedup_vs_autotune)
            row.roofline = show_share(event.roofline_fraction)
        else:
            row.time = f"{show_us(event.estimated_time_us)} estimated"

    def table(self) -> RenderableType:
        """The screen as it is now."""
        table = Table(box=None, pad_edge=False, expand=False)
        for heading in ("round", "candidate", "gate reached"):
            table.add_column(heading)
        tuned = any(row.vs_autotune != "-" for row in self.rows)
        third = ["x max-autotune"] if tuned else []
        for heading in ("time", "x eager", "x compile", *third, "roofline"):
            table.add_column(heading, justify="right")
        for row in self.rows:
            table.add_row(
                str(row.round),
                row.candidate,
                Text(row.gate[:48]),
                row.time,
                row.vs_eager,
                row.vs_compile,
                *([row.vs_autotune] if tuned else []),
                row.roofline,
            )
        foot = "  ".join(part for part in (self.time_left(), self.doing(), self.remote) if part)
        title = Text(self.heading, style="bold")
        below = (*self.models.lines(), Text(foot), Text(self.note), *self.writing.lines())
        return Group(title, table, *below)


SECOND_S = 1.0


@contextmanager
def counting(what: str, *, silent: bool = False) -> Iterator[None]:
    """While it holds, stderr says for how long `what` is done and how far it is: one line that
    counts on a terminal, a line every half minute in a pipe; `silent`: nothing."""
    if silent:
        yield
        return
    with recording() as stages:
        drawn = sys.stdout.isatty() and sys.stderr.isatty()
        every_s = SECOND_S if drawn else SILENCE_S
        clock = ElapsedTime(
            sys.stderr,
            stderr_columns(),
            lambda seconds: progress_words(what, seconds, stages.doing),
            first_s=every_s,
            every_s=every_s,
            lines=not drawn,
        )
        clock.start()
        try:
            yield
        finally:
            clock.stop()


class LiveTable:
    """`RunProgress` on a terminal, drawn anew four times a second."""

    def __init__(self, console: Console, models: ModelUsage | None = None) -> None:
        self.progress = RunProgress(models=models or ModelUsage())
        self._live = Live(console=console, refresh_per_second=4, get_renderable=self.progress.table)

    def show(self, event: Event) -> None:
        """Take one event in; the next drawing has it."""
        self.progress.show(event)
        match event:
            case ApprovalAsked():
                self._live.stop()  # whoever asks has the terminal to himself
            case ApprovalGiven():
                self._live.start()
            case _:
                pass

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.writing.end()  # half an answer is not what stays on the screen
        self._live.stop()
