"""Candidates of a session as a tree, as bars, and as tables of plans, profiles and costs.

Measured and estimated times never share one scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree as Drawn

from agentkernel.chat.replies import Compared, Cost, Planned, Profiled, readable_rows
from agentkernel.chat.tree import Node, TimeBasis, Tree, basis_of, time_us
from agentkernel.cli.rendering.text import (
    View,
    escaped,
    facts,
    flat,
    grid,
    hanging,
    lines,
    show_bytes,
    show_ratio,
    show_share,
    show_span,
    show_us,
    truncate,
)
from agentkernel.domain.plan import Analysis
from agentkernel.domain.verdict import NOT_JUDGED
from agentkernel.workflows.report import usage_rows

LEAST_BAR = 8
"""Columns below which there is no bar, only figures."""
MOST_BAR = 60


class Scale(NamedTuple):
    """Candidates whose times may be compared, and reference lines: (mark, name, microseconds)."""

    basis: TimeBasis
    nodes: tuple[Node, ...]
    lines: tuple[tuple[str, str, float], ...]


def bars(nodes: Sequence[Node], view: View) -> RenderableType:
    """One bar a candidate, eager and torch.compile as lines across; nothing without a time."""
    return Group(*(_drawn(scale, view) for scale in scales(nodes)))


def scales(nodes: Sequence[Node]) -> list[Scale]:
    """The candidates with a time, by what they can be compared with."""
    groups: dict[TimeBasis, list[Node]] = {}
    for node in nodes:
        basis = basis_of(node)
        if basis is not None:
            groups.setdefault(basis, []).append(node)
    return [_scale(basis, group) for basis, group in groups.items()]


def _scale(basis: TimeBasis, nodes: Sequence[Node]) -> Scale:
    references: dict[str, list[float]] = {}
    for node in nodes:
        for name, us in _references(node):
            references.setdefault(name, []).append(us)
    middle = [
        (name[0].upper(), name, sorted(times)[len(times) // 2])
        for name, times in references.items()
    ]
    return Scale(basis, tuple(nodes), tuple(middle))


def _references(node: Node) -> list[tuple[str, float]]:
    profile = node.profile
    if profile is None:
        return []
    if not profile.measured:
        eager = profile.baseline_estimate
        return [] if eager is None else [("eager", eager.time_us)]
    first = profile.measurements[0]
    found = [("eager", first.eager.median_us)]
    if first.compiled is not None:
        found.append(("torch.compile", first.compiled.median_us))
    return found


def _drawn(scale: Scale, view: View) -> RenderableType:
    texts = [_figures(node) for node in scale.nodes]
    names = [f"c{node.number}" for node in scale.nodes]
    times = [time_us(node) or 0.0 for node in scale.nodes]
    label = max(map(cell_len, names))
    room = min(MOST_BAR, view.width - label - max(map(cell_len, texts)) - 3)
    told = [f"{mark} {name} {show_us(us)}" for mark, name, us in scale.lines]
    title = Text(truncate(scale.basis.words, view.width, view.unicode), style="bold")
    feet = [Text(", ".join(told), overflow="fold")] if told else []
    if room < LEAST_BAR:
        plain = [
            Text(truncate(f"{name} {text}", view.width, view.unicode))
            for name, text in zip(names, texts, strict=True)
        ]
        return Group(title, *plain, *feet)
    longest = max(times + [us for _, _, us in scale.lines])
    marks = {_column(us, longest, room): mark for mark, _, us in reversed(scale.lines)}
    measured = scale.basis.measured
    full, style = (view.sign("█", "#"), "green") if measured else (view.sign("░", ":"), "yellow")
    rows = []
    for name, text, us in zip(names, texts, times, strict=True):
        strip = _strip(_column(us, longest, room), room, marks, full, view)
        rows.append(Text.assemble(f"{name:<{label}} ", (strip, style), f"  {text}"))
    head = "".join(marks.get(column, " ") for column in range(room + 1)).rstrip()
    heads = [Text(" " * (label + 1) + head)] if marks else []
    return Group(title, *heads, *rows, *feet)


def _figures(node: Node) -> str:
    """The time, with its 10% and 90% quantiles where it was measured."""
    text = show_us(time_us(node))
    if node.profile is None or not node.profile.measured:
        return f"{text} estimated"
    timing = node.profile.measurements[0].candidate
    return f"{text} [{show_us(timing.p10_us)}, {show_us(timing.p90_us)}]"


def _column(time_us: float, longest: float, room: int) -> int:
    return min(room - 1, max(0, round(time_us / longest * room) - 1)) if longest > 0 else 0


def _strip(last: int, room: int, marks: dict[int, str], full: str, view: View) -> str:
    """A bar up to column `last`, the reference lines in front of it."""
    line = view.sign("│", "|")
    signs = [line if column in marks else full if column <= last else " " for column in range(room)]
    return "".join(signs)


GUIDE = 4
"""Columns that a level is set in by."""
TEXT_WIDTH = 60
"""Characters of a request that a line quotes."""


def candidate_tree(tree: Tree, view: View, target: str = "") -> RenderableType:
    """The tree from the module down; below some depth a candidate says whom it came from. A time
    for another GPU than `target` names it."""
    here = tree.place.candidate
    root = Drawn(_marked("the module", _root_marks(tree, here), here is None, view))
    limit = max(1, view.width // 3 // GUIDE)
    drawn: dict[int, tuple[Drawn, int]] = {}
    for node in sorted(tree.nodes, key=lambda item: item.number):
        parent = node.parent
        above, depth = drawn.get(parent, (root, 0)) if parent is not None else (root, 0)
        note = ""
        if parent is not None and (parent not in drawn or depth >= limit):
            note = f"from c{parent}"
        label = _label(node, tree, note, view, target)
        if depth >= limit:
            above.add(label)
            drawn[node.number] = (above, depth)
        else:
            drawn[node.number] = (above.add(label), depth + 1)
    return root


def _root_marks(tree: Tree, here: int | None) -> list[str]:
    told = ["you are here"] if here is None else []
    return [*told, *_branches(tree, None)]


def _branches(tree: Tree, number: int | None) -> list[str]:
    """Branches whose tip this is, where there is more than one."""
    if len(tree.branches) < 2:
        return []
    found = []
    for branch in tree.branches:
        current = branch.number == tree.place.branch
        tip = tree.place if current else branch.tip
        if tip.candidate == number:
            found.append(f"branch {branch.number}{' (current)' if current else ''}")
    return found


def _label(node: Node, tree: Tree, note: str, view: View, target: str) -> Text:
    here = tree.place.candidate == node.number
    told = ["you are here"] if here else []
    told += ["kept"] if tree.kept == node.number else []
    told += ["rejected by you"] if node.number in tree.rejected else []
    told += _branches(tree, node.number)
    told += [note] if note else []
    told += [node.origin] if node.origin != "drafted" else []
    label = _marked(f"c{node.number}", told, here, view)
    label.append(f"{view.dot}{verdict_words(node)}")
    speed = speed_words(node)
    if speed:
        label.append(f"{view.dot}{speed}")
        if target and node.profile is not None and node.profile.target != target:
            label.append(f" for {node.profile.target}")
    step = next((item for item in tree.steps if item.number == node.step), None)
    if step is not None and step.text:
        text = flat(step.text)
        text = text if len(text) <= TEXT_WIDTH else f"{text[: TEXT_WIDTH - 3]}..."
        label.append(f"\n{text!r}" if "'" in text else f"\n'{text}'", style="dim")
    label.overflow = "fold"
    return label


def _marked(name: str, told: list[str], here: bool, view: View) -> Text:
    label = Text(view.sign("▶ ", "> ") if here else "", overflow="fold")
    label.append(name, style="bold")
    if told:
        label.append(f" [{', '.join(told)}]", style="cyan")
    return label


def verdict_words(node: Node) -> str:
    """`accepted`, `refused at correctness`, `set aside` or `not judged`."""
    if node.verdict is None:
        return f"set aside: {flat(node.aside)}" if node.aside else "not judged"
    if not node.verdict.accepted:
        return NOT_JUDGED if node.verdict.undecided else f"refused at {node.verdict.gate}"
    return "accepted (interpreted)" if node.verdict.interpreted else "accepted"


def speed_words(node: Node) -> str:
    """Time and speedup over eager, said to be measured or estimated; "" where there is none."""
    profile = node.profile
    if profile is None:
        missed = node.unprofiled
        return "" if missed is None else f"no time: {missed.side}: {flat(missed.reason)}"
    if profile.measured:
        first = profile.measurements[0]
        ratio = show_ratio(first.vs_eager.value)
        return f"{show_us(first.candidate.median_us)}, {ratio} eager, measured"
    return f"{show_us(profile.estimate.time_us)} estimated"


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


def _what_is_left(reply: Profiled) -> list[RenderableType]:
    """The answer in a sentence: what bounds it, and how much faster it could be at most."""
    profile, analysis, took = reply.node.profile, reply.analysis, time_us(reply.node)
    if profile is None or took is None or not analysis.bound_us:
        return []
    held = "measured" if profile.measured else "estimated"
    if analysis.roofline == "latency":
        said = f"Bound by its launches: {held} at {show_us(took)}, of which the work itself is"
        return [lines(f"{said} {show_us(analysis.bound_us)} on the roofline.")]
    share = show_share(analysis.bound_us / took)
    left = show_ratio(max(1.0, took / analysis.bound_us))
    said = f"Bound by {analysis.roofline}: {held} at {share} of the roofline, by which {left} is"
    return [lines(f"{said} left at most.")]


def profiled(reply: Profiled, view: View) -> RenderableType:
    """What bounds the problem, then the evidence on the candidate."""
    node = reply.node
    title = Text(f"c{node.number}: {verdict_words(node)}", style="bold", overflow="fold")
    rows = analysis_rows(reply.analysis)
    said = {*(name for name, _ in rows), ROOFLINE}  # the evidence begins with the analysis
    rows += [(flat(name), flat(value)) for name, value in reply.facts if name not in said]
    parts: list[RenderableType] = [title, *_what_is_left(reply), facts(rows, view)]
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
    accounts = reply.accounts
    rows = [tuple(row) for row in usage_rows(accounts.by_agent, accounts.total)]
    if len(accounts.by_agent) == 1:
        rows = rows[:1]  # the total of one is that one
    if not view.unicode:
        rows = [tuple(value.replace("–", "-") for value in row) for row in rows]
    used = [
        place
        for place in range(len(COST_HEADINGS))
        if any(row[place] not in ("–", "-", "0") for row in rows)
    ]
    headings = [COST_HEADINGS[place] for place in used]
    cells = [[row[place] for place in used] for row in rows]
    table = grid(headings, cells, view, right=tuple(range(1, len(used))))
    head = lines(f"{show_span(reply.seconds)} in all steps, of which models took:")
    return Group(head, "", table)
