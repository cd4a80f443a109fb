"""How does a session read as text, and how is it written so that it can be done again?"""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.agents.prompts import fenced, inline
from agentkernel.chat.replies import (
    ClarificationNeeded,
    Compared,
    Cost,
    DiffOf,
    EditRequested,
    Explained,
    FilesWritten,
    KnowledgeFound,
    Planned,
    PositionChanged,
    Profiled,
    Reply,
    Roofline,
    SessionEnded,
    Source,
    StepRan,
    TextReply,
    TreeShown,
    Turn,
    readable_rows,
)
from agentkernel.chat.tree import label

PAGE, JSON_LINES, SCRIPT = "session.md", "session.jsonl", "session.txt"
"""The files of an exported session."""
PAGE_BEGINS = "# A session about "
BLOCK_BEGINS, BLOCK_ENDS = "<<<", ">>>"
"""Around a text of several lines in a script."""


def as_markdown(name: str, facts: Sequence[tuple[str, str]], turns: Sequence[Turn]) -> str:
    """The session for people: the facts about it, then each turn with its answers."""
    lines = [f"{PAGE_BEGINS}{inline(name)}", ""]
    lines += [f"- {what}: {inline(value, 600)}" for what, value in facts]
    lines += ["", "`session.txt` beside this file does it again: `agentkernel chat FILE --script`."]
    for turn in turns:
        asked = turn.text if "\n" not in turn.text else ""
        lines += ["", f"## {inline(asked, 120) or 'A candidate that was given'}", ""]
        if not asked:
            lines += [fenced(turn.text, "python"), ""]
        if turn.approved:
            given = ", ".join("yes" if item else "no" for item in turn.approved)
            lines += [f"Asked for approval, the answer was: {given}.", ""]
        for reply in turn.replies:
            lines += [words(reply), ""]
    return "\n".join(lines).rstrip() + "\n"


def as_jsonl(turns: Sequence[Turn]) -> str:
    """A JSON object a turn."""
    return "".join(f"{turn.model_dump_json()}\n" for turn in turns)


def as_script(turns: Sequence[Turn]) -> str:
    """What was typed, a line each; a text of several lines stands in a block. The answers to a
    turn's questions are the lines after it."""
    parts = []
    for turn in turns:
        text = turn.text.strip("\n")
        if not text:
            continue
        block = "\n" in text or text.startswith(("#", BLOCK_BEGINS, BLOCK_ENDS))
        parts.append(f"{BLOCK_BEGINS}\n{text}\n{BLOCK_ENDS}\n" if block else f"{text}\n")
        parts += ["y\n" if item else "n\n" for item in turn.approved]
    return "".join(parts)


def words(reply: Reply) -> str:
    """An answer as Markdown."""
    match reply:
        case TextReply() | StepRan() | PositionChanged() | Cost() | FilesWritten():
            return "  \n".join(inline(line, 2000) for line in reply.text.splitlines())
        case SessionEnded():
            return reply.text or "The session ended."
        case ClarificationNeeded():
            near = [item.example for item in reply.nearest] + list(reply.options)
            return "\n".join([reply.text, *(f"- {inline(item)}" for item in near)])
        case Source():
            return fenced(reply.text, "python")
        case DiffOf():
            return fenced(reply.text, "diff") if reply.text else "Both are the same."
        case Explained():
            notes = [
                f"- {'' if line is None else f'line {line}: '}{inline(text, 600)}"
                for line, text in reply.notes
            ]
            return "\n".join([f"{inline(reply.name)}:", "", *notes])
        case Compared():
            return _compared(reply)
        case Profiled():
            facts = [f"- {name}: {inline(value, 600)}" for name, value in reply.facts]
            return "\n".join([f"{label(reply.node.number)}:", "", *facts])
        case Roofline():
            points = [
                f"- {point.label}: {point.gflops:.4g} GFLOP/s at {point.intensity:.3g} FLOP a byte"
                f", {'measured' if point.measured else 'estimated'}"
                for point in reply.points
            ]
            roof = f"{reply.target}: {reply.gb_per_s:.0f} GB/s, {reply.peak_gflops:.4g} GFLOP/s"
            return "\n".join([f"{roof}:", "", *points])
        case Planned():
            return _planned(reply)
        case TreeShown():
            return (
                "\n".join(
                    f"- {label(node.number)} from {label(node.parent)}: "
                    f"{inline(node.candidate.strategy or node.candidate.coder)}"
                    for node in reply.tree.nodes
                )
                or "No candidate yet."
            )
        case KnowledgeFound():
            hits = [f"- {hit.entry.id}: {inline(hit.entry.title)}" for hit in reply.hits]
            return "\n".join(hits) or "Nothing was found."
        case EditRequested():
            return f"{label(reply.number)} was opened for a change."


def _compared(reply: Compared) -> str:
    heads = " | ".join(label(node.number) for node in reply.nodes)
    lines = [f"| | {heads} |", "|---" * (len(reply.nodes) + 1) + "|"]
    for what, cells in readable_rows(reply):
        told = " | ".join(inline(cell).replace("|", "/") for cell in cells)
        lines.append(f"| {what} | {told} |")
    return "\n".join([*lines, "", reply.verdict])


def _planned(reply: Planned) -> str:
    analysis = reply.plan.analysis
    lines = [f"Bound by {analysis.roofline}, at best {analysis.bound_us:.3g} us (estimated):", ""]
    for place, item in enumerate(reply.plan.hypotheses, 1):
        tried = " (tried)" if item.strategy in reply.tried else ""
        lines.append(f"{place}. {inline(item.strategy)}{tried}: {inline(item.reason, 400)}")
    return "\n".join(lines)
