"""How is a model asked that was taught by `agentkernel train`? In the very words of its rows.

A conversation begins with the module. Where a file is to be mended or made faster, that file stands
as the model's own turn, and the last turn says what the judge or the profiler found.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.agents.evidence import Fact, evidence_of
from agentkernel.agents.prompts import fenced, render
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.exchange import Message
from agentkernel.domain.rules import Policy
from agentkernel.domain.verdict import Verdict

MOST_FACTS = 8
"""Lines of evidence in a turn: a small model's window is short."""


def write_turn(
    source: str, class_name: str, target: str, policy: Policy, shapes: str = "", graph: str = ""
) -> Message:
    """The task: `source` is the module's file, `target` the GPU's title, `shapes` its inputs,
    `graph` what it computes (see compiler/graph_listing.py)."""
    text = render(
        "taught",
        source=source,
        class_name=class_name,
        target=target,
        policy=policy,
        shapes=shapes,
        graph=graph,
    )
    return Message(role="user", text=text)


def file_turn(kernel: str) -> Message:
    """A file that the model is to go on from, as if it had just given it."""
    return Message(role="assistant", text=fenced(kernel, "python"))


def repair_turn(candidate: Candidate, verdict: Verdict) -> Message:
    """What the judge found in a file that it refused."""
    evidence = evidence_of(candidate, verdict)
    text = render(
        "taught_repair",
        kind=evidence.kind,
        facts=evidence.facts[:MOST_FACTS],
        excerpt=evidence.excerpt.text if evidence.excerpt else "",
    )
    return Message(role="user", text=text)


def faster_turn(facts: Sequence[Fact]) -> Message:
    """Where the time of a right file goes."""
    return Message(role="user", text=render("taught_faster", facts=tuple(facts)[:MOST_FACTS]))


def completion(reasoning: str, kernel: str) -> str:
    """What the model is taught to say: the reasons, then the whole file."""
    words = reasoning.strip()
    file = fenced(kernel, "python")
    return f"{words}\n\n{file}" if words else file


__all__ = ["completion", "faster_turn", "file_turn", "repair_turn", "write_turn"]
