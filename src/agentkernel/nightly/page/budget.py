"""What was the night's budget spent on?"""

from __future__ import annotations

from agentkernel.domain.night import NightlyRun, RegionRow
from agentkernel.nightly.page.content import Bar
from agentkernel.nightly.page.costs import seconds_per_percent
from agentkernel.nightly.page.tables import STATUS_TONES, region_order
from agentkernel.nightly.page.wording import count, percent, span, times, us

SHOWN = 12
"""Regions with a bar of their own."""


def budget_bars(night: NightlyRun) -> tuple[Bar, ...]:
    """The regions that took the most seconds, by their number in the table, and the rest together;
    the longest bar is full."""
    rows = sorted(night.regions, key=lambda row: (-row.spent_s, row.signature))
    spent = [row for row in rows if row.spent_s > 0]
    total = sum(row.spent_s for row in spent)
    if not total:
        return ()
    rest = sum(row.spent_s for row in spent[SHOWN:])
    most = max(spent[0].spent_s, rest)
    places = {row.signature: place for place, row in enumerate(region_order(night), 1)}
    bars = [
        Bar(
            label=f"{places[row.signature]}. {row.name}",
            share=row.spent_s / most,
            text=f"{span(row.spent_s)}, {percent(row.spent_s / total)}: {_came_out(row)}",
            tone=STATUS_TONES[row.status],
            href=f"#region-{row.signature}",
        )
        for row in spent[:SHOWN]
    ]
    if rest:
        words = f"{span(rest)}, {percent(rest / total)}"
        bars.append(Bar(count(len(spent) - SHOWN, "more region"), rest / most, words, "quiet"))
    return tuple(bars)


def budget_words(night: NightlyRun) -> str:
    """What there was, what was used, by how many, and the price of a percent."""
    limit = f" of {span(night.budget_s)}" if night.budget_s is not None else ""
    workers = count(night.workers, "worker")
    spent = sum(row.spent_s for row in night.regions)
    parts = [
        f"Wall time {span(night.wall_s)}{limit} on {workers}",
        f"jobs {span(night.gpu_s)}, regions {span(spent)} of it",
    ]
    price = seconds_per_percent(night)
    if price is not None:
        mark = "" if night.basis == "measured" else " (estimated)"
        parts.append(f"{span(price)} of jobs for each 1% of the mean{mark}")
    return "; ".join(parts) + "."


def _came_out(row: RegionRow) -> str:
    if row.speedup is not None and row.time_us is not None:
        return f"{row.status}, {times(row.speedup)}"
    if row.time_us is not None:
        return f"{row.status}, ≈ {us(row.time_us)} for eager's ≈ {us(row.eager_us)} (estimated)"
    return row.status
