"""Requests that change nothing: plans, profiles, sources, comparisons, status and costs."""

from __future__ import annotations

import ast
import difflib
import math
import re
from contextlib import closing
from pathlib import Path

from agentkernel.agents.evidence import evidence_of, speed_evidence
from agentkernel.agents.history import outcome
from agentkernel.agents.models.costs import totals
from agentkernel.chat import figures
from agentkernel.chat.figures import NOTE
from agentkernel.chat.language.question_words import BETTER_NOW, BYTES_MOVED
from agentkernel.chat.language.questions import said
from agentkernel.chat.overview import Notes, ask_explanation, explain
from agentkernel.chat.replies import (
    HAND,
    ClarificationNeeded,
    Compared,
    Cost,
    DiffOf,
    Explained,
    KnowledgeFound,
    Planned,
    Profiled,
    Reply,
    Source,
    TextReply,
    TreeShown,
)
from agentkernel.chat.requests import AskDocs, CandidateRef, Compare, Diff, ExplainLine, OnCandidate
from agentkernel.chat.session_state import (
    WORDS,
    SessionState,
    difference,
    display_value,
    effective_value,
    infeasible_goal,
)
from agentkernel.chat.store import attempt_of
from agentkernel.chat.tree import (
    Node,
    NoSuchCandidate,
    basis_of,
    contenders,
    fastest,
    for_target,
    is_accepted,
    label,
    problem_of,
    time_us,
)
from agentkernel.chat.user_input import reading_model
from agentkernel.domain.errors import AgentKernelError, KnowledgeError, OutputError, one_line
from agentkernel.domain.exchange import Exchange
from agentkernel.domain.formatting import count
from agentkernel.domain.knowledge import Query
from agentkernel.domain.plain_text import sentence
from agentkernel.knowledge.base import open_base
from agentkernel.knowledge.store import folder_of
from agentkernel.storage.records import read_records
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.targets import load_targets
from agentkernel.workflows.events import Noted

MOST_HITS = 5
AROUND = 3
ONE_PASS = 1.02
"""Bytes that eager moves over the least, up to which there is no pass to save."""


def not_possible(text: str) -> TextReply:
    """What could not be done, with what would."""
    return TextReply(text=text, ok=False)


def explain_module(work: SessionState) -> Reply:
    """Where the module's own time goes, before there is a candidate: estimated from its graph."""
    target, (analysis, eager) = work.target, work.figures
    ops = ", ".join(f"{name} x{number}" for name, number in sorted(analysis.op_counts.items()))
    left = max(0.0, 1 - analysis.bound_us / eager.time_us) if eager.time_us else 0.0
    operations = count(sum(analysis.op_counts.values()), "operation")
    least = figures.bytes_words(analysis.bytes_min)
    lines = (
        f"Bound by {analysis.roofline} on {target.title} (estimated; nothing was run).",
        f"At best {analysis.bound_us:.3g} us: {least} and {analysis.flops / 1e9:.3g} GFLOP.",
        f"Eager PyTorch {eager.time_us:.3g} us in {operations}, bound by {eager.bound}.",
        memory_passes(eager.bytes_moved, analysis.bytes_min),
        f"{left:.0%} of eager's time is not needed by the roofline. 'run' goes after it.",
        infeasible_goal(work),
        f"Operations: {ops}.",
    )
    notes = tuple((None, line) for line in lines if line)
    return Explained(name=work.file_name(None), notes=notes)


def memory_passes(moved: int, least: int) -> str:
    """How often eager's operations take the data through memory, in one line; "" where nothing is
    moved."""
    if not least:
        return ""
    often = moved / least
    figures_of = f"{figures.bytes_words(moved)} moved, {figures.bytes_words(least)} at least"
    if often < ONE_PASS:
        return f"Eager makes one pass over memory, as few as there can be: {figures_of}."
    return (
        f"Eager makes {often:.2g} passes over memory where one would do ({figures_of}): its "
        "operations write values that the next one reads again."
    )


def _none_here(work: SessionState, intent: OnCandidate) -> bool:
    """True where nothing but the module can be meant: no candidate is named, and none is right for
    the inputs in force."""
    return not work.tree.nodes or (intent.candidate == "current" and work.current is None)


def profile(work: SessionState, intent: OnCandidate, asked: str = "") -> Reply:
    """Where a candidate's time goes, measured or estimated, and what stands in its way; how much
    memory it takes, or how many bytes it moves, where that is what was `asked`."""
    if re.match(BYTES_MOVED, said(asked).text):
        return bytes_moved(work, intent)
    if MEMORY.search(asked.lower()):
        return memory(work, intent)
    if intent.candidate == "original" or _none_here(work, intent):
        return explain_module(work)
    node = work.node(intent.candidate)
    if not is_accepted(node):
        return why_rejected(work, OnCandidate(name="why_rejected", candidate=node.number))
    plan = work.plan_of(node)
    if node.profile is None or plan is None:
        why = f": {node.unprofiled.side}: {node.unprofiled.reason}" if node.unprofiled else ""
        return not_possible(
            f"{sentence(f'{label(node.number)} has no profile{why}')} 'run' takes one."
        )

    target = work.target if work.target.name == node.profile.target else None
    evidence = speed_evidence(node.profile, plan.analysis, target)
    basis = {
        "measured": f"measured on {node.profile.measured_on}",
        "estimated": "estimated from the roofline; nobody measured it",
    }[evidence.basis]
    facts = [("basis", basis), *((fact.name, fact.value) for fact in evidence.facts)]
    reach = infeasible_goal(work, look=False) if target is not None else ""
    if reach and problem_of(work.tree, node) == work.place.problem:
        facts.append(("goal", reach))
    return Profiled(node=node, analysis=plan.analysis, facts=tuple(facts))


MEMORY = re.compile(
    r"^(?!.*\b(?:shared|bandwidth|bound|traffic|time|where|pass\w*|slow\w*|why)\b)"
    r"(?=.*\b(?:how|what|whats|usage|footprint)\b).*\b(?:memory|vram|ram)\b"
)


def memory(work: SessionState, intent: OnCandidate) -> Reply:
    """A candidate's peak memory where it was measured, and what a call cannot do without."""
    if intent.candidate == "original" or _none_here(work, intent):
        least = figures.bytes_words(work.figures.analysis.bytes_min)
        words = "The module's peak memory was not measured."
        return TextReply(text=f"{words} A call reads and writes {least} at least.")
    node = work.node(intent.candidate)
    name, profile = label(node.number), node.profile
    if not is_accepted(node):
        return not_possible(f"{name}: {figures.verdict_words(node)}. Its memory does not count.")
    words = f"{name}: peak memory was not measured, for there was no GPU."
    if profile is not None and profile.measurements:
        found = profile.measurements[0]
        peak = figures.bytes_words(found.peak_memory_bytes)
        eager = figures.bytes_words(found.eager_peak_memory_bytes)
        words = f"{name}: peak memory {peak}, eager's {eager} (measured on {profile.measured_on})."
    plan = work.plan_of(node)
    if plan is None:
        return TextReply(text=words)
    least = figures.bytes_words(plan.analysis.bytes_min)
    return TextReply(text=f"{words} A call reads and writes {least} at least.")


def bytes_moved(work: SessionState, intent: OnCandidate) -> Reply:
    """What a call takes through memory, as its estimate counts it, and the least that it can."""
    if intent.candidate == "original" or _none_here(work, intent):
        analysis, eager = work.figures
        moved = figures.bytes_words(eager.bytes_moved)
        words = f"Eager's operations read and write {moved} in a call (estimated from its graph)."
        return TextReply(text=f"{words} {_least(analysis.bytes_min)}")
    node = work.node(intent.candidate)
    name, plan = label(node.number), work.plan_of(node)
    if not is_accepted(node) or node.profile is None or plan is None:
        return not_possible(f"{name}: {figures.verdict_words(node)}. Its bytes were not counted.")
    moved = figures.bytes_words(node.profile.estimate.bytes_moved)
    before = node.profile.baseline_estimate
    beside = f", eager's operations {figures.bytes_words(before.bytes_moved)}" if before else ""
    words = f"{name} reads and writes {moved} in a call{beside} (counted, not measured)."
    return TextReply(text=f"{words} {_least(plan.analysis.bytes_min)}")


def _least(size: int) -> str:
    least = figures.bytes_words(size)
    return f"The least is {least}: each input, weight and output once."


def roofline(work: SessionState, intent: OnCandidate) -> Reply:
    """Every right candidate for these sizes under the roof, with the baselines. The GPU is the one
    in force, where anybody has a time for it; else, and where a candidate is named, that of its
    time."""
    if _none_here(work, intent):
        return explain_module(work)
    node = work.node(intent.candidate)
    same = [
        item
        for item in work.tree.nodes
        if problem_of(work.tree, item) == problem_of(work.tree, node)
        and item.number not in work.tree.rejected
        and item.number != node.number
    ]
    shown, target = [*same, node], work.target_name
    aimed = [item for item in shown if is_accepted(item) and for_target(item, target)]
    if not isinstance(intent.candidate, int) and aimed:
        shown = [*(item for item in shown if item is not aimed[-1]), aimed[-1]]
    timed = [item for item in shown if item.profile is not None and is_accepted(item)]
    alike = [item for item in timed if basis_of(item) == basis_of(timed[-1])]
    roofs = [plan.analysis for item in alike if (plan := work.plan_of(item)) is not None]
    # Candidates of several precisions stand under one roof: the highest, or one would pass it.
    highest = min(roofs, key=lambda analysis: analysis.compute_time_us, default=None)
    found = None if highest is None else figures.roofline(shown, highest)
    if found is None:
        return not_possible("No candidate has a time yet. 'run' gives one.")
    if len({analysis.compute_time_us for analysis in roofs}) > 1:
        note = f"The roof is that of the loosest precision shown. {found.note}".strip()
        found = found.evolve(note=note)
    last = work.plan_of(timed[-1])
    if last is not None and last.analysis.roofline == "latency":
        # What the roof says of its bytes and operations is not what bounds so short a call.
        name = label(timed[-1].number)
        words = f"The roof leaves out launches, which take longer here: {name} is bound by latency."
        found = found.evolve(note=f"{words} {found.note}".strip())
    if target is None or aimed:
        return found
    note = f"Nobody has a time for {target} yet: 'run' gives one. {found.note}".strip()
    return found.evolve(note=note)


def tree(work: SessionState) -> Reply:
    """The tree."""
    return TreeShown(tree=work.tree, target=work.target_name or "")


def plan(work: SessionState) -> Reply:
    """The plan in force, with those of its strategies that were tried; before a run the rules' one.
    Raises ProblemError."""
    found, reach = work.plan, infeasible_goal(work)
    if found is None:
        return Planned(plan=work.first_plan, tried=tried(work), note=f"{NOTE} {reach}".strip())
    return Planned(plan=found, tried=tried(work), note=reach)


def tried(work: SessionState) -> tuple[str, ...]:
    """The strategies that candidates for these sizes and the target in force came from."""
    names = [
        node.candidate.strategy
        for node in work.tree.nodes
        if problem_of(work.tree, node) == work.place.problem
        and node.origin == "drafted"
        and _aimed(work, node)
    ]
    return tuple(dict.fromkeys(name for name in names if name))


def _aimed(work: SessionState, node: Node) -> bool:
    step = work.tree.step(node.step)
    return step is None or work.target_of(step.changes) == work.target_name


def show_candidate(work: SessionState, intent: OnCandidate) -> Reply:
    """A candidate's file, or the module's."""
    found = work.meant(intent.candidate)
    work.shown = (found, 1)
    return Source(number=found, name=work.file_name(found), text=work.source(found))


def show_kernel(work: SessionState, intent: OnCandidate) -> Reply:
    """A candidate's Triton functions, whole, without the module around them."""
    number = work.meant(intent.candidate)
    text = work.source(number)
    lines = text.splitlines()
    found = [
        (min(item.lineno, *(mark.lineno for mark in item.decorator_list)), item.end_lineno or 0)
        for item in parse_source(text).body
        if isinstance(item, ast.FunctionDef) and item.decorator_list
    ]
    if not found:
        return not_possible(f"{work.file_name(number)} has no Triton kernel. 'show the source'.")
    first = found[0][0] if len(found) == 1 else 1
    shown = "\n\n\n".join("\n".join(lines[start - 1 : end]) for start, end in found)
    work.shown = (number, found[0][0])
    return Source(number=number, name=work.file_name(number), text=f"{shown}\n", first=first)


def explain_kernel(work: SessionState, intent: OnCandidate) -> Reply:
    """What a candidate's kernels do, from its text."""
    return _explained(work, work.meant(intent.candidate), None, None)


def explain_line(work: SessionState, intent: ExplainLine) -> Reply:
    """What a line does; "this line" is the one that was shown last."""
    number = work.meant(intent.candidate)
    line = intent.line
    if line is None:
        if work.shown is None:
            return ClarificationNeeded(
                text="Which line?", options=("explain line 12", "show the kernel")
            )
        number, line = work.shown
    length = len(work.source(number).splitlines())
    if line > length:
        name = work.file_name(number)
        return not_possible(
            f"{name} has {length} lines: there is no line {line}. 'show' gives them."
        )
    work.shown = (number, line)
    return _explained(work, number, line, intent.last_line)


def _explained(
    work: SessionState, number: int | None, first: int | None, last: int | None
) -> Reply:
    text = work.source(number)
    name = work.file_name(number)
    lines = text.splitlines()
    begin = 1 if first is None else max(1, first - AROUND)
    end = len(lines) if first is None else min(len(lines), (last or first) + AROUND)
    marked = () if first is None else tuple(range(first, min(last or first, len(lines)) + 1))
    part = "\n".join(lines[begin - 1 : end]) + "\n"
    source = Source(number=number, name=name, text=part, first=begin, marked=marked)
    notes = explain(text, first, last)
    said = _said_by_model(
        work, name, notes, text, None if first is None else (first, last or first)
    )
    return Explained(name=name, notes=(*notes, *said), source=source)


def _said_by_model(
    work: SessionState, name: str, notes: Notes, text: str, lines: tuple[int, int] | None
) -> Notes:
    """What the model says of a file, marked as its words; nothing where none is configured."""
    named = reading_model(work.settings)
    if named is None:
        return ()
    work.on_event(Noted(text=f"asking {named} to explain {name}"))
    try:
        with work.model(named) as (model, sampling):
            words = ask_explanation(model, sampling, text, notes, lines)
    except AgentKernelError as error:
        return ((None, f"{named} cannot explain it: {one_line(error)}"),)
    if not words:
        return ((None, f"{named} said nothing about it."),)
    return ((None, f"In the words of {named}, which nobody verified:\n{words}"),)


def diff(work: SessionState, intent: Diff) -> Reply:
    """The changed lines of one candidate, seen from another."""
    new = work.meant(intent.candidate)
    node = work.tree.node(new) if new is not None else None
    if node is None and intent.against == "parent":
        return not_possible(
            "The session stands at the module: nothing was changed. 'run' makes a candidate."
        )
    from_parent = node is not None and intent.against == "parent"
    if intent.candidate == "last" and new == work.meant(intent.against):
        return diff(work, Diff(candidate=new or "last", against=_newest_but(work, new)))
    before = node.parent if node is not None and from_parent else work.meant(intent.against)
    names = work.file_name(before), work.file_name(new)
    lines = difflib.unified_diff(
        work.source(before).splitlines(), work.source(new).splitlines(), *names, lineterm=""
    )
    return DiffOf(old=names[0], new=names[1], text="\n".join(lines))


def compare(work: SessionState, intent: Compare, asked: str = "") -> Reply:
    """Two candidates side by side; the module is what eager PyTorch does. Of "was that better?",
    `asked` behind a step, what it made and what it began with."""
    if re.match(BETTER_NOW, said(asked).text):
        return _last_step(work)
    first = _side(work, intent.first, intent)
    second = _side(work, intent.second or _newest(work, intent.first), intent)
    if first is None and second is None:
        return not_possible(
            "Two candidates are compared, or one with the module. 'tree' lists them."
        )
    if first is None or second is None:
        node = second if first is None else first
        assert node is not None
        return figures.against_module(node)
    if "last" in (intent.first, intent.second) and first.number == second.number:
        second = work.node(_newest_but(work, first.number))
    if problem_of(work.tree, first) != problem_of(work.tree, second):
        text = f"{label(first.number)} and {label(second.number)} are for other sizes or dtypes"
        return not_possible(f"{text}: their times say nothing of one another.")
    if first.number == second.number:
        return not_possible(figures.conclusion(first, second))
    return _side_by_side(work, first, second)


MOST_COMPARED = 16
"""Columns of one table, as many as a sweep has."""


def compare_all(work: SessionState) -> Reply:
    """Every candidate for the inputs in force side by side; those for others are left out by
    name, for times at other inputs say nothing of one another."""
    here, gone = work.judged_here, work.tree.rejected
    kept = [node for node in here if node.number not in gone]
    if not kept:
        return not_possible("There is no candidate for these inputs. 'tree' lists all there are.")
    shown = kept[-MOST_COMPARED:]
    left = (
        ("for other inputs", [node for node in work.tree.nodes if node not in here]),
        ("discarded", [node for node in here if node.number in gone]),
        (f"older than the last {MOST_COMPARED}", kept[:-MOST_COMPARED]),
    )
    best = figures.fastest_words(contenders(work.tree, work.target_name))
    fastest_of_all = f" Fastest: {best}." if best else ""
    lines = [f"{count(len(shown), 'candidate')} side by side.{fastest_of_all}"]
    lines += [
        f"Left out, {why}: {', '.join(label(node.number) for node in nodes)}."
        for why, nodes in left
        if nodes
    ]
    return Compared(nodes=tuple(shown), rows=figures.rows_of(shown), verdict="\n".join(lines))


def _newest_but(work: SessionState, number: int | None) -> int:
    """The newest candidate besides one that is the newest itself. Raises NoSuchCandidate."""
    others = [node.number for node in work.tree.nodes if node.number != number]
    if not others:
        name = label(number)
        raise NoSuchCandidate(
            f"{name} is the only candidate: there is no other to set beside it. 'run' and wishes "
            f"such as 'use 4 warps' make more, 'compare {name} with the original' compares."
        )
    return others[-1]


def _side_by_side(work: SessionState, first: Node, second: Node) -> Reply:
    older, newer = sorted((first, second), key=lambda node: node.number)
    work.compared = (older.number, newer.number)
    return figures.compared(older, newer)


def _last_step(work: SessionState) -> Reply:
    """What the last step for the inputs in force has brought: its newest right candidate beside the
    one that it began with, else beside the newest of the steps before it, or the module."""
    nodes = work.judged_here
    right = [node for node in nodes if is_accepted(node)]
    if not right:
        return figures.against_module(work.node("current"))
    if right[-1].step != nodes[-1].step:
        words = f"{label(nodes[-1].number)} is not right: {figures.verdict_words(nodes[-1])}"
        return TextReply(text=f"No: {words}. {label(right[-1].number)} still counts.")
    newest, step = right[-1], work.tree.step(right[-1].step)
    earlier = [node for node in right if node.step != newest.step]
    base = [node for node in earlier if step is not None and node.number == step.base]
    if not earlier:
        return figures.against_module(newest)
    return _side_by_side(work, (base or earlier)[-1], newest)


def _newest(work: SessionState, first: CandidateRef) -> CandidateRef:
    """What a candidate is compared with where nobody says: the fastest right one of the newest step
    that judged any, its parent where it is of that step itself."""
    try:
        one = work.node(first)
    except NoSuchCandidate:
        return "parent"
    right = [node for node in work.tree.nodes if is_accepted(node)]
    if not right or right[-1].step <= one.step:
        return "parent"
    newest = [node for node in right if node.step == right[-1].step]
    return min(newest, key=lambda node: time_us(node) or math.inf).number


def _side(work: SessionState, ref: CandidateRef, intent: Compare) -> Node | None:
    """A candidate, None for the module. A parent is that of the other side."""
    if ref == "current":
        return work.node(ref)
    if ref == "parent":
        given = intent.second if intent.first == "parent" else intent.first
        other = work.node(given or "current")
        return work.tree.node(other.parent) if other.parent is not None else None
    found = work.meant(ref)
    return None if found is None else work.tree.node(found)


def why_rejected(work: SessionState, intent: OnCandidate) -> Reply:
    """The verdict in words, with its evidence and the line at fault."""
    named = intent.candidate != "current" or not work.tree.nodes
    node = work.node(intent.candidate) if named else work.current
    if node is None or (not named and is_accepted(node)):
        refused = [item for item in work.judged_here if not is_accepted(item)]
        refused = refused or [item for item in work.tree.nodes if not is_accepted(item)]
        if not refused:
            return TextReply(text="No candidate was refused.")
        node = refused[-1]
    name = label(node.number)
    if is_accepted(node):
        return TextReply(text=f"{name} was not refused: {figures.verdict_words(node)}.")
    words = f"{name}: {figures.verdict_words(node)}"
    verdict = node.verdict
    if verdict is None or verdict.accepted:
        return Explained(name=words, notes=((None, f"{words}."),))
    evidence = evidence_of(node.candidate, verdict)
    line = getattr(evidence, "line", None)
    notes = [
        (
            line if fact.name in ("line", "error", "what happened") else None,
            f"{fact.name}: {fact.value}",
        )
        for fact in evidence.facts
    ]
    return Explained(name=words, notes=tuple(notes), source=_around(node, line))


def _around(node: Node, line: int | None) -> Source | None:
    if line is None:
        return None
    lines = node.candidate.source.splitlines()
    begin = max(1, line - AROUND)
    text = "\n".join(lines[begin - 1 : line + AROUND]) + "\n"
    name = f"{label(node.number)}.py"
    return Source(number=node.number, name=name, text=text, first=begin, marked=(line,))


def ask_docs(work: SessionState, intent: AskDocs) -> Reply:
    """What the knowledge base holds on a question."""
    known = work.settings.knowledge
    try:
        with open_base(folder_of(known.index), known.embedder) as base:
            base.refresh(wait=False)
            hits = base.search(Query(text=intent.query, words=intent.query, limit=MOST_HITS))
    except (OutputError, KnowledgeError) as error:
        return not_possible(str(error))
    return KnowledgeFound(query=intent.query, hits=hits)


def history(work: SessionState) -> Reply:
    """Every step with its candidates and what became of each."""
    if not work.tree.steps:
        return TextReply(text="Nothing was tried yet. 'run' begins.")
    lines = []
    for step in work.tree.steps:
        lines.append(f"{step.number}. {step.text!r} from {label(step.base)}: {step.outcome}")
        for node in work.tree.nodes:
            if node.step == step.number:
                name = HAND.get(node.origin) or node.candidate.strategy or node.candidate.coder
                told = f"{outcome(attempt_of(node))}{_target(work, node)}"
                lines.append(f"   {_marks(work, node)} {name}: {told}")
    return TextReply(text="\n".join(lines))


def of_another_target(work: SessionState, node: Node) -> bool:
    """True where a candidate has a time, and none for the target in force."""
    return node.profile is not None and not for_target(node, work.target_name)


def _target(work: SessionState, node: Node) -> str:
    """The GPU that a time is for, where some time of the session is not for the one in force."""
    if node.profile is None or not any(of_another_target(work, item) for item in work.tree.nodes):
        return ""
    return f", for {node.profile.target}"


def _marks(work: SessionState, node: Node) -> str:
    marks = [
        word
        for word, holds in (
            ("current", node.number == work.place.candidate),
            ("kept", node.number == work.tree.kept),
            ("discarded", node.number in work.tree.rejected),
        )
        if holds
    ]
    return label(node.number) + (f" ({', '.join(marks)})" if marks else "")


def status(work: SessionState) -> Reply:
    """Where the session stands, in a few lines."""
    settings, current = work.settings, work.place.candidate
    node = work.tree.node(current) if current is not None else None
    aimed = work.target_name
    target = aimed or settings.target or "the local GPU, else h100"
    lines = [
        f"{work.module.name}: {count(len(work.tree.steps), 'step')}, "
        f"{count(len(work.tree.nodes), 'candidate')}.",
        f"Current: {label(current)}"
        + (f", {_told(node, aimed)}" if node is not None else "")
        + f", branch {work.place.branch}.",
        _fastest(work, aimed),
        f"For {target}, precision {settings.goals.precision}, policy {settings.policy}; the goal "
        f"is {settings.goals.speedup:g}x against {settings.goals.baseline}, for "
        f"{settings.goals.objective}.",
    ]
    if work.place.problem:
        inputs = work.store.problem(work.place.problem).shape_sets[0].label
        lines.append(f"With {work.inputs_apart(work.place.problem)}: {inputs}.")
    if work.tree.kept is not None:
        lines.append(f"Kept: {label(work.tree.kept)}.")
    reach = infeasible_goal(work, look=False)
    return TextReply(text="\n".join([*lines, reach] if reach else lines))


def _fastest(work: SessionState, target: str | None) -> str:
    """The fastest for the GPU in force; one for another GPU is said to be."""
    best = figures.fastest_words(contenders(work.tree, target))
    if best:
        return f"Fastest: {best}."
    node = work.tree.node(fastest(work.tree) or 0)
    basis = None if node is None else basis_of(node)
    if node is None or basis is None:
        right = any(is_accepted(item) for item in work.tree.nodes)
        gone = "Every right candidate is discarded, or for other sizes."
        return gone if right else "No right candidate yet."
    elsewhere = figures.fastest_words(contenders(work.tree))
    return f"No time for {target} yet; fastest, {basis.words}: {elsewhere}."


def _told(node: Node, target: str | None) -> str:
    time = figures.time_words(node, target)
    return figures.verdict_words(node) + (f", {time}" if time else "")


def settings(work: SessionState) -> Reply:
    """The settings that matter most with their keys, then those that were changed here."""
    now = work.settings
    lines = [
        f"{words}: {display_value(effective_value(now, key))}  ({key})"
        for key, words in WORDS.items()
    ]
    changed = difference(work.settings_of({}), now)
    lines += [f"changed here: {item}" for item in changed] or ["nothing was changed here"]
    lines.append("'/set KEY VALUE' changes one, as in '/set budget.rounds 3'; Tab lists all keys.")
    return TextReply(text="\n".join(lines))


def targets(work: SessionState) -> Reply:
    """The GPU that this session is for, then every one that a kernel can be for."""
    resolved = work.resolved
    now = resolved.target.name
    note = f" ({resolved.note})" if resolved.note else ""
    lines = [f"This session is for {resolved.target.title}{note}.", "Known, as in 'for the l4':"]
    lines += [
        f"{'*' if name == now else ' '} {name}: {target.title}"
        for name, target in load_targets().items()
    ]
    return TextReply(text="\n".join([*lines, "  local: the GPU of this machine"]))


def cost(work: SessionState) -> Reply:
    """Seconds of all steps, and what models took in them and in reading sentences."""
    seconds = sum(step.seconds for step in work.tree.steps)
    exchanges = [item for path in _records(work) for item in _exchanges(path)]
    accounts = totals(exchanges) if exchanges else None
    text = f"{seconds:.1f} s in {count(len(work.tree.steps), 'step')}"
    if accounts is None:
        return Cost(seconds=seconds, accounts=None, text=f"{text}; no model was asked.")
    total = accounts.total
    money = "price not known" if total.cost_usd is None else f"${total.cost_usd:.4f}"
    least = " at least" if total.unpriced and total.cost_usd is not None else ""
    text += f"; {total.prompt} tokens in, {total.completion} out, {money}{least}."
    return Cost(seconds=seconds, accounts=accounts, text=text)


def _records(work: SessionState) -> list[str]:
    runs = [str(work.runs / step.run / "run.sqlite") for step in work.tree.steps if step.run]
    return [*runs, str(work.folder / "models.sqlite")]


def _exchanges(path: str) -> list[Exchange]:
    try:
        records = read_records(Path(path))
    except OutputError:
        return []
    with closing(records):
        return list(records.exchanges())
