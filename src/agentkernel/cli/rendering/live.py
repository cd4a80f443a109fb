"""What does a run look like while it goes on: one line a candidate, and the time left?"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from agentkernel.cli.rendering.live_models import ModelUsage
from agentkernel.cli.rendering.live_writing import LiveWriting
from agentkernel.cli.rendering.quantities import show_ratio, show_share, show_span, show_us
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
    RunStarted,
    VerdictReached,
)


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


@dataclass
class RunProgress:
    """What the events so far amount to; `show` takes them in the order in which they come."""

    rows: list[CandidateRow] = field(default_factory=list)
    heading: str = ""
    node: str = ""
    note: str = ""
    time_limit_s: float | None = None
    began: float = field(default_factory=time.monotonic)
    spent_before_s: float = 0.0
    models: ModelUsage = field(default_factory=ModelUsage)
    writing: LiveWriting = field(default_factory=LiveWriting)

    def show(self, event: Event) -> None:
        """Take one event in."""
        self.models.show(event)
        self.writing.show(event)
        match event:
            case RunStarted():
                again = "again " if event.resumed else ""
                self.heading = f"{event.problem} for {event.target} {again}({event.run})"
                self.note = "; ".join((event.note, *event.warnings))
                self.time_limit_s = event.time_limit_s
                self.spent_before_s = event.spent_s
            case NodeStarted():
                self.node = f"round {event.round}: {event.node}"
            case NodeFinished():
                self.node = ""
            case Planned():
                first = event.plan.hypotheses[0].strategy if event.plan.hypotheses else "nothing"
                self.note = f"plan: {first}, bound by {event.plan.analysis.roofline}"
            case CandidateDrafted():
                self._drafted(event)
            case CandidateSetAside():
                self.row(event.candidate, event.round).gate = f"set aside: {event.reason}"
            case VerdictReached():
                gate = (
                    "accepted" if event.accepted else f"{event.gate}: {event.failure or 'refused'}"
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
        foot = "  ".join(part for part in (self.time_left(), self.node) if part)
        title = Text(self.heading, style="bold")
        below = (*self.models.lines(), Text(foot), Text(self.note), *self.writing.lines())
        return Group(title, table, *below)


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
