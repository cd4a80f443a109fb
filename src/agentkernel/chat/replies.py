"""What does a turn of a session answer? One frozen type a kind, for people and programs alike."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from agentkernel.agents.models.ledger import Ledger
from agentkernel.chat.domain_session import Node, Place, Tree
from agentkernel.chat.intent import Suggestion
from agentkernel.domain.base import Frozen
from agentkernel.domain.knowledge import Hit
from agentkernel.domain.plan import Analysis, Plan
from agentkernel.workflows.outcome import Result


class TextReply(Frozen):
    """Plain lines. `ok` False: the request could not be done, and the text says what would."""

    kind: Literal["said"] = "said"
    text: str
    ok: bool = True


class ClarificationNeeded(Frozen):
    """Not understood, or not surely: the nearest things that are, as sentences to type."""

    kind: Literal["puzzled"] = "puzzled"
    text: str
    nearest: tuple[Suggestion, ...] = ()
    options: tuple[str, ...] = ()


class StepRan(Frozen):
    """A step that ran. `made` are the numbers of its candidates, `place` where the session stands
    now."""

    kind: Literal["ran"] = "ran"
    step: int
    made: tuple[int, ...]
    place: Place
    result: Result | None
    text: str
    """What changed against where the step began, in one or two lines."""


class Source(Frozen):
    """A candidate's file, or the module's (`number` None). `first` is the number of its first line;
    `marked` are lines to point at."""

    kind: Literal["source"] = "source"
    number: int | None
    name: str
    text: str
    first: int = 1
    marked: tuple[int, ...] = ()


class DiffOf(Frozen):
    """A unified diff; empty where both are the same."""

    kind: Literal["diff"] = "diff"
    old: str
    new: str
    text: str


class Explained(Frozen):
    """What code does: (line number or None, words) in the order of the file."""

    kind: Literal["explained"] = "explained"
    name: str
    notes: tuple[tuple[int | None, str], ...]
    source: Source | None = None


class Compared(Frozen):
    """Candidates side by side. `rows`: (what, one value a candidate), `verdict` the conclusion."""

    kind: Literal["compared"] = "compared"
    nodes: tuple[Node, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    verdict: str


HAND = {"edited": "edited by hand", "pasted": "pasted"}
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


class Profiled(Frozen):
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


class Roofline(Frozen):
    """Candidates below the roof of a target: `gb_per_s` and `peak_gflops` are its two slopes."""

    kind: Literal["roofline"] = "roofline"
    target: str
    gb_per_s: float = Field(gt=0)
    peak_gflops: float = Field(gt=0)
    peak_of: str
    points: tuple[RooflinePoint, ...]
    note: str = ""
    """Which candidates are left out because their times are for another GPU."""


class Planned(Frozen):
    """The plan in force and which of its hypotheses were tried. `note`: what the plan rests on,
    where it is no run's."""

    kind: Literal["planned"] = "planned"
    plan: Plan
    tried: tuple[str, ...] = ()
    note: str = ""


class TreeShown(Frozen):
    """The tree with the place that holds now. `target`: the GPU in force, "" where it is not known;
    times for another one are said to be."""

    kind: Literal["tree"] = "tree"
    tree: Tree
    target: str = ""


class PositionChanged(Frozen):
    """The session stands elsewhere, or works with other settings."""

    kind: Literal["moved"] = "moved"
    place: Place
    text: str


class Cost(Frozen):
    """Seconds of all steps, and what the models took."""

    kind: Literal["cost"] = "cost"
    seconds: float
    accounts: Ledger | None
    text: str


class KnowledgeFound(Frozen):
    """What the knowledge base holds on a question."""

    kind: Literal["found"] = "found"
    query: str
    hits: tuple[Hit, ...]


class FilesWritten(Frozen):
    """Files that were written."""

    kind: Literal["wrote"] = "wrote"
    paths: tuple[str, ...]
    text: str


class EditRequested(Frozen):
    """The user is to change `text` (from candidate `number`, or the module) at `line`; the new text
    comes back by `Session.offer`."""

    kind: Literal["editing"] = "editing"
    number: int | None
    text: str
    line: int | None = None


class SessionEnded(Frozen):
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
