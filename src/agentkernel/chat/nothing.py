"""Why did a step draft nothing new, or where was it stopped, and what would help?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentkernel.chat.tree import label
from agentkernel.domain.errors import one_line
from agentkernel.domain.settings import MODEL_PREFIXES

if TYPE_CHECKING:
    from agentkernel.chat.domain_session import Node
    from agentkernel.chat.gather import RunEnding
    from agentkernel.chat.work import SessionState

STOPS = {
    "met": "the goal is met already",
    "headroom": "what is there reaches the roofline already",
    "time": "the time was up",
    "tokens": "the tokens were used up",
    "money": "the money was used up",
    "stagnation": "the latest drafts were no better",
    "declined": "what it would try was declined",
}
"""Why a loop stops that has ideas left, or needs none."""
DOING = {
    "plan": "planning",
    "retrieve": "looking up what is known",
    "draft": "drafting",
    "judge": "judging",
    "profile": "timing",
    "debug": "looking for the fault",
    "decide": "deciding how to go on",
    "finish": "writing the result",
}


def why_no_candidates(work: SessionState, ending: RunEnding, tried: Sequence[str]) -> str:
    """The reason, without a full stop."""
    if ending.stop in STOPS:
        return STOPS[ending.stop]
    if ending.barren:
        return "; ".join(_exhausted(work, name, reason) for name, reason in ending.barren[:3])
    if ending.planned:
        return "no idea that is left is expected to be faster"
    if tried:
        return f"all ideas were tried ({', '.join(tried)})"
    return "no rule names an idea for this module"


def _exhausted(work: SessionState, strategy: str, reason: str) -> str:
    again = next((node for node in work.tree.nodes if node.candidate.id in reason), None)
    if again is not None:
        return f"{strategy!r} gives {label(again.number)} again"
    return f"{strategy!r}: {one_line(reason, 200)}"


def least_memory(work: SessionState, node: Node | None) -> str:
    """Where little memory is asked for: that a candidate holds nothing but inputs and outputs; ""
    where that is not known."""
    profile = None if node is None else node.profile
    if node is None or profile is None or work.settings.goals.objective != "memory":
        return ""
    report = profile.report
    if report is None or len(report.kernels) != 1 or report.library_ops:
        return ""
    return (
        f"{label(node.number)} is one kernel, which keeps no value of its own in memory: inputs "
        "and outputs are all that there is to hold."
    )


def what_next(work: SessionState, node: Node | None) -> str:
    """What may bring something new."""
    drafts = work.settings.coder
    if drafts.startswith(MODEL_PREFIXES) or work.settings.in_turns:
        first = "'run' asks the model again"
    else:
        first = "'be more aggressive' searches anew"
    by_hand = "paste a candidate" if node is None else f"'edit {label(node.number)}' by hand"
    return f"Next: {first}, {by_hand}, or other sizes."


def stopped_words(ending: RunEnding, unjudged: Sequence[Node]) -> str:
    """`Stopped while judging c4`."""
    doing = DOING.get(ending.node, "")
    if not doing:
        return "Stopped before it began"
    what = f" {label(unjudged[-1].number)}" if ending.node == "judge" and unjudged else ""
    return f"Stopped while {doing}{what}"
