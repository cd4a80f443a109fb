"""How does a night read as a comment on a pull request?"""

from __future__ import annotations

from collections.abc import Iterator

from agentkernel.domain.night import Comparison, ModelRow, NightlyRun
from agentkernel.domain.region import Basis
from agentkernel.nightly.page.budget import budget_words
from agentkernel.nightly.page.changes import change_groups, headline
from agentkernel.nightly.page.costs import ModelCost, model_costs
from agentkernel.nightly.page.merged import merged_regions
from agentkernel.nightly.page.speeds import form_time_us, mean_speedup, nearest, speedup
from agentkernel.nightly.page.wording import DASH, caption, count, dropped_text, interval, times, us
from agentkernel.workflows.report_models import cell, table

MOST_MODELS, MOST_CHANGES = 40, 5


def markdown(night: NightlyRun, comparison: Comparison) -> str:
    """Headline, changes, one short table for what was measured and one for what was estimated."""
    lines = [f"### {cell(night.zoo)}: {headline(comparison)}", ""]
    groups = change_groups(night, comparison, MOST_CHANGES)
    for group in groups:
        lines.append(f"**{group.title}**")
        lines += [f"- {cell(line.what)}: {cell(line.text)}" for line in group.lines]
        lines += [f"- and {group.more} more", ""] if group.more else [""]
    if comparison.against is None:
        lines += ["No earlier night to compare with.", ""]
    elif not groups:
        lines += [f"Nothing changed beyond noise since night {cell(comparison.against)}.", ""]
    for basis in ("measured", "estimated"):
        lines += _models(night, basis)
    merged = merged_regions(night).words
    return "\n".join([*lines, *((merged, "") if merged else ()), budget_words(night), ""])


def _models(night: NightlyRun, basis: Basis) -> Iterator[str]:
    rows = [row for row in night.models if row.basis == basis]
    if not rows:
        return
    mean = mean_speedup(rows, basis)
    over = "the faster of eager and torch.compile" if basis == "measured" else "eager"
    mark = "" if basis == "measured" else " (estimated)"
    yield f"{cell(caption(night, basis))}. Geometric mean {times(mean)} over {over}{mark}."
    yield ""
    headings = ("model", "runs as", f"over {over}{mark}", f"time{mark}", f"cost of 1%{mark}")
    costs = model_costs(night)
    cells = [_cells(row, costs.get(row.name)) for row in rows[:MOST_MODELS]]
    yield from table((*headings, "outputs"), cells)
    yield ""
    for row in rows[:MOST_MODELS]:
        if row.left_out:
            yield f"- {cell(row.name)}: {cell('; '.join(dropped_text(row)))}"
    if any(row.left_out for row in rows[:MOST_MODELS]):
        yield ""
    if len(rows) > MOST_MODELS:
        yield from (f"And {count(len(rows) - MOST_MODELS, 'more model')} in models.csv.", "")


def _cells(row: ModelRow, cost: ModelCost | None) -> tuple[str, ...]:
    if row.error is not None:
        return (cell(row.name), "failed", DASH, DASH, DASH, cell(row.error)[:120])
    around = interval(nearest(row)) if row.basis == "measured" else ""
    value = speedup(row)
    outputs = {True: "verified", False: "wrong", None: DASH}[row.verified]
    return (
        cell(row.name),
        row.form,
        f"{times(value)} ({around})" if around else times(value),
        us(form_time_us(row)),
        cost.text if cost is not None else DASH,
        outputs,
    )
