"""What is planned, what was it worth, and what did it take: plans, profiles and costs?"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from agentkernel.chat.replies import Compared, Cost, Planned, Profiled, readable_rows
from agentkernel.cli.rendering.bars import bars
from agentkernel.cli.rendering.family import verdict_words
from agentkernel.cli.rendering.page import View, facts, grid, hanging, lines
from agentkernel.cli.rendering.plain import escaped, flat
from agentkernel.cli.rendering.quantities import show_bytes, show_span, show_us
from agentkernel.domain.plan import Analysis
from agentkernel.workflows.report_models import UsageTotals, usage_rows

ROOFLINE = "possible"
"""What the evidence calls the time on the roofline, which the analysis gives."""
COST_HEADINGS = (
    "agent",
    "questions",
    "requests",
    "tokens in",
    "out",
    "cached",
    "USD",
    "s",
    "GPU s",
)


def analysis_rows(analysis: Analysis) -> list[tuple[str, str]]:
    """What bounds a problem; all of it estimated."""
    times = (
        f"memory {show_us(analysis.memory_time_us)}, compute {show_us(analysis.compute_time_us)}"
    )
    return [
        ("bound by", analysis.roofline),
        ("roofline", f"{show_us(analysis.bound_us)} (estimated; {times})"),
        ("at least", f"{show_bytes(analysis.bytes_min)}, {analysis.flops / 1e9:.3g} GFLOP"),
    ]


def planned(reply: Planned, view: View) -> RenderableType:
    """The bound, the ideas by their numbers with what became of them, and the decisions."""
    plan = reply.plan
    parts: list[RenderableType] = [facts(analysis_rows(plan.analysis), view), ""]
    waiting = [item for item in plan.hypotheses if item.strategy not in reply.tried]
    for number, item in enumerate(plan.hypotheses, start=1):
        tried = item.strategy in reply.tried
        state = "tried" if tried else "next" if waiting and item is waiting[0] else "not tried"
        promise = "" if item.predicted_us is None else f", {show_us(item.predicted_us)} predicted"
        by = f" by {flat(item.predicted_by)}" if promise and item.predicted_by else ""
        head = f"{number}. "
        text = f"{flat(item.strategy)} [{state}]{promise}{by}: {flat(item.reason)}"
        parts.append(hanging(head, text, view))
        if item.algebra is not None:
            parts += [hanging("   = ", flat(step.derivation), view) for step in item.algebra.steps]
    if not plan.hypotheses:
        parts.append(lines("No ideas yet: 'run' works them out."))
    if reply.note:
        parts.append(lines(flat(reply.note)))
    changed = [item for item in plan.decisions if item.value != item.default]
    if changed:
        parts += ["", lines("Settings that the knowledge base suggests:")]
    parts += [
        hanging("- ", f"{item.key} = {item.value} instead of {item.default}, from {item.because}",
                view)
        for item in changed
    ]  # fmt: skip
    if plan.retrieved:
        parts += ["", hanging("Read for this plan: ", ", ".join(plan.retrieved), view)]
    return Group(*parts)


def profiled(reply: Profiled, view: View) -> RenderableType:
    """What bounds the problem, then the evidence on the candidate."""
    node = reply.node
    title = Text(f"c{node.number}: {verdict_words(node)}", style="bold", overflow="fold")
    rows = analysis_rows(reply.analysis)
    said = {*(name for name, _ in rows), ROOFLINE}  # the evidence begins with the analysis
    rows += [(flat(name), flat(value)) for name, value in reply.facts if name not in said]
    parts: list[RenderableType] = [title, facts(rows, view)]
    if node.profile is not None:
        parts += ["", bars([node], view)]
    return Group(*parts)


def compared(reply: Compared, view: View) -> RenderableType:
    """A column a candidate, their times as bars, and the conclusion."""
    headings = ("", *(f"c{node.number}" for node in reply.nodes))
    count = len(headings)
    rows = [
        (
            what,
            *(escaped(value, view.unicode) for value in values),
            *[""] * (count - 1 - len(values)),
        )
        for what, values in readable_rows(reply)
    ]
    parts: list[RenderableType] = [grid(headings, [row[:count] for row in rows], view)]
    if any(node.profile is not None for node in reply.nodes):
        parts += ["", bars(reply.nodes, view)]
    missing = [f"c{node.number}" for node in reply.nodes if node.profile is None]
    if missing and all(what != "time" for what, _ in reply.rows):
        parts.append(lines(f"no time: {', '.join(missing)}"))
    return Group(*parts, "", lines(Text(reply.verdict, style="bold")))


def cost(reply: Cost, view: View) -> RenderableType:
    """The words, or the time and one line an agent; columns with nothing in them are left out."""
    if reply.accounts is None:
        return lines(reply.text or f"{show_span(reply.seconds)} in all steps.")
    parts: list[RenderableType] = [
        lines(f"{show_span(reply.seconds)} in all steps, of which models took:")
    ]
    if reply.accounts is not None:
        takings = [UsageTotals(**item.model_dump()) for item in reply.accounts.by_agent]
        total = UsageTotals(**reply.accounts.total.model_dump())
        rows = [tuple(row) for row in usage_rows(takings, total)]
        if len(takings) == 1:
            rows = rows[:1]  # the total of one is that one
        if not view.unicode:
            rows = [tuple(value.replace("–", "-") for value in row) for row in rows]
        empty = ("–", "-", "0")
        used = [
            place
            for place in range(len(COST_HEADINGS))
            if any(row[place] not in empty for row in rows)
        ]
        headings = [COST_HEADINGS[place] for place in used]
        cells = [[row[place] for place in used] for row in rows]
        parts += ["", grid(headings, cells, view, right=tuple(range(1, len(used))))]
    return Group(*parts)


__all__ = ["compared", "cost", "planned", "profiled"]
