"""Replies of a session's turns, one frozen type a kind, and the transcript made from them.

A transcript is Markdown for people, JSON lines for programs, or a script that can be run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias, cast

from pydantic import Field

from agentkernel.agents.models.costs import Ledger
from agentkernel.agents.prompts import fenced, inline
from agentkernel.chat.requests import Suggestion
from agentkernel.chat.tree import Node, Place, Tree, label
from agentkernel.domain.base import Frozen
from agentkernel.domain.knowledge import Hit
from agentkernel.domain.plan import Analysis, Plan
from agentkernel.workflows.outcome import Result

MOST_SHOWN = 100
"""Characters of an answer in a listing."""


class Answer(Frozen):
    """What a turn answers: printed, its words; in a listing, its kind and the first of them."""

    def __str__(self) -> str:
        """The answer as Markdown."""
        return words(cast("Reply", self))

    def __repr__(self) -> str:
        """One line, such as `<TextReply: Nothing was changed.>`."""
        first = next((line for line in str(self).splitlines() if line.strip()), "")
        return f"<{type(self).__name__}: {inline(first, MOST_SHOWN)}>"


class TextReply(Answer):
    """Plain lines. `ok` False: the request could not be done, and the text says what would."""

    kind: Literal["said"] = "said"
    text: str
    ok: bool = True


class ClarificationNeeded(Answer):
    """Not understood, or not surely: the nearest things that are, as sentences to type."""

    kind: Literal["puzzled"] = "puzzled"
    text: str
    nearest: tuple[Suggestion, ...] = ()
    options: tuple[str, ...] = ()


class StepRan(Answer):
    """A step that ran. `made` are the numbers of its candidates, `place` where the session stands
    now."""

    kind: Literal["ran"] = "ran"
    step: int
    made: tuple[int, ...]
    place: Place
    result: Result | None
    text: str
    """What changed against where the step began, in one or two lines."""


class Source(Answer):
    """A candidate's file, or the module's (`number` None). `first` is the number of its first line;
    `marked` are lines to point at."""

    kind: Literal["source"] = "source"
    number: int | None
    name: str
    text: str
    first: int = 1
    marked: tuple[int, ...] = ()


class DiffOf(Answer):
    """A unified diff; empty where both are the same."""

    kind: Literal["diff"] = "diff"
    old: str
    new: str
    text: str


class Explained(Answer):
    """What code does: (line number or None, words) in the order of the file."""

    kind: Literal["explained"] = "explained"
    name: str
    notes: tuple[tuple[int | None, str], ...]
    source: Source | None = None


class Compared(Answer):
    """Candidates side by side. `rows`: (what, one value a candidate), `verdict` the conclusion."""

    kind: Literal["compared"] = "compared"
    nodes: tuple[Node, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    verdict: str


HAND = {
    "edited": "edited by hand",
    "pasted": "pasted",
    "wished": "changed as asked",
    "judged anew": "judged anew",
}
"""Who wrote a candidate that nobody drafted."""


def readable_rows(reply: Compared) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The rows of a comparison for people: who wrote a candidate by hand is said as that."""
    return tuple((what, _told(what, values, reply.nodes)) for what, values in reply.rows)


def _told(what: str, values: tuple[str, ...], nodes: tuple[Node, ...]) -> tuple[str, ...]:
    by_hand = [HAND.get(node.origin, "") for node in nodes]
    if what == "by" and len(values) == len(nodes):
        return tuple(hand or value for hand, value in zip(by_hand, values, strict=True))
    if what == "strategy" and len(values) == len(nodes):
        return tuple("–" if hand else value for hand, value in zip(by_hand, values, strict=True))
    return values


class Profiled(Answer):
    """Where a candidate's time goes and what stands in its way."""

    kind: Literal["profiled"] = "profiled"
    node: Node
    analysis: Analysis
    facts: tuple[tuple[str, str], ...]
    """(name, value) from the evidence, in order."""


class RooflinePoint(Frozen):
    """`intensity` in FLOPs a byte, `gflops` reached; measured or estimated."""

    label: str
    intensity: float = Field(gt=0)
    gflops: float = Field(gt=0)
    measured: bool


class Roofline(Answer):
    """Candidates below the roof of a target: `gb_per_s` and `peak_gflops` are its two slopes."""

    kind: Literal["roofline"] = "roofline"
    target: str
    gb_per_s: float = Field(gt=0)
    peak_gflops: float = Field(gt=0)
    peak_of: str
    points: tuple[RooflinePoint, ...]
    note: str = ""
    """Which candidates are left out because their times are for another GPU."""


class Planned(Answer):
    """The plan in force and which of its hypotheses were tried. `note`: what the plan rests on,
    where it is no run's."""

    kind: Literal["planned"] = "planned"
    plan: Plan
    tried: tuple[str, ...] = ()
    note: str = ""


class TreeShown(Answer):
    """The tree with the place that holds now. `target`: the GPU in force, "" where it is not known;
    times for another one are said to be."""

    kind: Literal["tree"] = "tree"
    tree: Tree
    target: str = ""


class PositionChanged(Answer):
    """The session stands elsewhere, or works with other settings."""

    kind: Literal["moved"] = "moved"
    place: Place
    text: str


class Cost(Answer):
    """Seconds of all steps, and what the models took."""

    kind: Literal["cost"] = "cost"
    seconds: float
    accounts: Ledger | None
    text: str


class KnowledgeFound(Answer):
    """What the knowledge base holds on a question."""

    kind: Literal["found"] = "found"
    query: str
    hits: tuple[Hit, ...]


class FilesWritten(Answer):
    """Files that were written."""

    kind: Literal["wrote"] = "wrote"
    paths: tuple[str, ...]
    text: str


class EditRequested(Answer):
    """The user is to change `text` (from candidate `number`, or the module) at `line`; the new text
    comes back by `Session.offer`."""

    kind: Literal["editing"] = "editing"
    number: int | None
    text: str
    line: int | None = None


class SessionEnded(Answer):
    """The session is over."""

    kind: Literal["ended"] = "ended"
    text: str = ""


Reply: TypeAlias = Annotated[
    TextReply
    | ClarificationNeeded
    | StepRan
    | Source
    | DiffOf
    | Explained
    | Compared
    | Profiled
    | Roofline
    | Planned
    | TreeShown
    | PositionChanged
    | Cost
    | KnowledgeFound
    | FilesWritten
    | EditRequested
    | SessionEnded,
    Field(discriminator="kind"),
]


class Turn(Frozen):
    """One thing that was asked, with its answers. `at`: ISO 8601, UTC."""

    text: str
    replies: tuple[Reply, ...]
    at: str
    approved: tuple[bool, ...] = ()
    """What was said to each question that was asked meanwhile."""


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
