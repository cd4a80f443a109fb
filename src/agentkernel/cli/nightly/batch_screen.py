"""What is shown of a night over a zoo: while it goes on, and when it is over?"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from agentkernel.cli.output import print_plain
from agentkernel.nightly.page.wording import lost_text

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from agentkernel.domain.night import Comparison, ModelRow, NightlyRun
    from agentkernel.nightly.scheduler.agenda import Scheduler

T = TypeVar("T")
SHOWN_REGIONS = 12
REFRESH_S = 0.5


@dataclass
class NightlyScreen:
    """What is shown while a night goes on: a table on a terminal, else a line an event."""

    as_json: bool
    said: Counter[str] = field(default_factory=Counter)
    """How many of each kind."""
    _live: Live | None = None
    _shown: float = -math.inf

    @contextmanager
    def live(self) -> Iterator[NightlyScreen]:
        """Around the night."""
        from rich.live import Live

        from agentkernel.cli.output import console

        screen = console()
        if self.as_json or not screen.is_terminal:
            yield self
            return
        with Live(console=screen, refresh_per_second=1 / REFRESH_S, transient=True) as shown:
            self._live = shown
            yield self

    def watch(self, scheduler: Scheduler) -> None:
        """Show what has changed; a table is made as often as it is shown."""
        if self._live is not None:
            if time.monotonic() - self._shown > REFRESH_S:
                self._live.update(progress(scheduler))
                self._shown = time.monotonic()
            return
        for values in _new_events(scheduler, self.said):
            self._say(values)

    def _say(self, values: Mapping[str, str]) -> None:
        from agentkernel.cli.output import print_json

        if self.as_json:
            print_json(dict(values))
        else:
            print_plain(": ".join(item for item in list(values.values())[1:] if item))


def _new_events(scheduler: Scheduler, said: Counter[str]) -> Iterator[dict[str, str]]:
    """What came since `said`, which is brought up to date. All of these only ever grow."""
    for name, cut in _since(scheduler.cuts, "cut", said):
        yield {"kind": "cut", "what": name, "status": f"{len(cut.regions)} regions"}
    for signature, decided in _since(scheduler.decided, "region", said):
        yield {
            "kind": "region",
            "what": f"{scheduler.regions[signature].name} {signature[:8]}",
            "status": decided.status,
            "reason": decided.reason,
        }
    for name, row in _since(scheduler.rows, "model", said):
        yield {"kind": "model", "what": name, "status": row.form}
    for name, why in _since(scheduler.errors, "error", said):
        yield {"kind": "model", "what": name, "status": "failed", "reason": why}
    for jobs, why in lost_text(scheduler.lost_jobs[said["lost"] :]):
        yield {"kind": "lost", "what": jobs, "status": why}
    said["lost"] = len(scheduler.lost_jobs)


def _since(found: dict[str, T], kind: str, said: Counter[str]) -> list[tuple[str, T]]:
    """The entries past the first `said[kind]`, without going through those."""
    new = list(islice(reversed(found.items()), len(found) - said[kind]))
    said[kind] = len(found)
    return new[::-1]


def progress(scheduler: Scheduler) -> Table:
    """One line a model, then the regions that are worked on and the latest decided."""
    from rich.table import Table

    from agentkernel.cli.rendering.quantities import show_share, show_span

    budget = scheduler.question.budget_s
    limit = f" of {show_span(budget)}" if budget is not None else ""
    table = Table(
        title=f"night {scheduler.question.night}: {show_span(scheduler.wall_s)}{limit}",
        box=None,
        pad_edge=False,
    )
    for heading in ("model", "region", "share", "status"):
        table.add_column(heading, justify="right" if heading == "share" else "left")
    for part in scheduler.question.parts:
        name = part.model.name
        row, error = scheduler.rows.get(name), scheduler.errors.get(name)
        status = error or (row.form if row else "cut" if name in scheduler.cuts else "waits")
        table.add_row(name, "", "", status)
    shown = [job.region for job in scheduler.running.values() if job.kind == "kernel"]
    latest = islice(reversed(scheduler.decided), SHOWN_REGIONS)
    shown += [scheduler.regions[signature] for signature in latest]
    for region in shown[:SHOWN_REGIONS]:
        decided = scheduler.decided.get(region.signature)
        models = ", ".join(dict.fromkeys(use.model for use in region.uses))
        status = decided.status if decided else "under way"
        table.add_row(models, region.name, show_share(region.share), status)
    return table


def models_table(night: NightlyRun) -> Table:
    """The end-to-end figures; measured and estimated ones are never in one column."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("model")
    table.add_column("runs as")
    figures = (
        ("x eager", "x compile", "time")
        if night.basis == "measured"
        else ("eager, estimated", "estimated", "x eager, estimated")
    )
    for heading in (*figures, "swapped", "of its time"):
        table.add_column(heading, justify="right")
    table.add_column("outputs")
    for row in night.models:
        table.add_row(*_cells(row, night))
    return table


def _cells(row: ModelRow, night: NightlyRun) -> tuple[str, ...]:
    from agentkernel.cli.rendering.quantities import show_ratio, show_share, show_us

    if row.error is not None:
        return (row.name, "failed", "", "", "", "", "", row.error)
    if night.basis == "measured":
        timing = row.timings.get(row.form)
        figures = (
            show_ratio(row.vs_eager.value if row.vs_eager else None),
            show_ratio(row.vs_compile.value if row.vs_compile else None),
            show_us(timing.median_us if timing else None),
        )
    else:
        figures = (
            show_us(row.estimated_eager_us),
            show_us(row.estimated_us),
            show_ratio(row.estimated_speedup),
        )
    verified = {True: "right", False: "not right", None: "-"}[row.verified]
    return (
        row.name,
        row.form,
        *figures,
        str(row.swapped),
        show_share(row.time_in_regions),
        verified,
    )


def print_summary(
    night: NightlyRun, comparison: Comparison, folder: Path, *, as_json: bool
) -> None:
    """The end-to-end table, what changed, and where the reports are."""
    from agentkernel.cli.output import console, print_json
    from agentkernel.nightly.page.changes import change_text, headline
    from agentkernel.nightly.page.costs import model_costs
    from agentkernel.nightly.page.merged import merged_regions

    if as_json:
        print_json(
            {
                "night": night.model_dump(mode="json"),
                "comparison": comparison.model_dump(mode="json"),
                "costs": [item.model_dump(mode="json") for item in model_costs(night).values()],
                "merged": merged_regions(night).model_dump(mode="json"),
                "exit_code": comparison.exit_code,
                "folder": str(folder),
            }
        )
        return
    screen = console()
    screen.print(models_table(night))
    for change in comparison.changes:
        kind = change.kind.replace("_", " ")
        screen.print(f"{kind}  {change.what}: {change_text(change)}", markup=False)
    against = f" (against night {comparison.against})" if comparison.against else ""
    screen.print(f"{headline(comparison)}{against}", markup=False)
    for name in ("night.html", "night.md", "junit.xml"):
        screen.print(f"report       {folder / name}", markup=False)
