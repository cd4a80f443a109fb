"""What does a request change where the session stands: does something wait for an answer, and is
what it forbids allowed at all?"""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.chat.intent import Intent, IntentContext, Plain, Run
from agentkernel.chat.language.tags import Tag
from agentkernel.domain.rules import Precision

ALLOWED: dict[Precision, frozenset[str]] = {
    "strict": frozenset(),
    "tf32": frozenset({"TF32"}),
    "bf16": frozenset({"TF32", "BF16"}),
}
"""The formats that each precision lets a kernel compute in."""
ANSWER = ("GOAHEAD", "YES", "FILLER", "POLITE", "MARK", "SEP", "THIS")
"""Concepts of the words that an answer may consist of."""
NAMED = ("TF32", "BF16")
MEANS_STRICT = ("STRICT", "REDUCED", "FP32", "PRECISION")
"""Words that ask for strict results, whatever is allowed now."""


def resolve_go_ahead(
    found: Sequence[Intent], tags: Sequence[Tag], context: IntentContext
) -> list[Intent]:
    """The same requests, "go ahead" read by what waits for an answer: with nothing waiting it
    begins a run, else it is a yes."""
    goes = any(tag.has("GOAHEAD") for tag in tags) and all(tag.has(*ANSWER) for tag in tags)
    if context.waiting is None or len(found) != 1 or not goes:
        return list(found)
    if context.waiting == "nothing":
        return [Run()] if found[0] == Plain(name="approve") else list(found)
    return [Plain(name="approve")] if found[0] == Run() else list(found)


def forbids_nothing(
    found: Sequence[Intent], tags: Sequence[Tag], context: IntentContext
) -> str | None:
    """The line that says so where "don't use bf16" forbids what is not allowed now anyway; None
    where it changes something, or where the precision in force is not known."""
    precisions = [item for item in found if item.name == "precision"]
    if context.precision is None or [item.precision for item in precisions] != ["strict"]:
        return None
    named = {concept for tag in tags for concept in NAMED if tag.has(concept)}
    if not named or any(tag.has(*MEANS_STRICT) for tag in tags):
        return None
    if named & ALLOWED[context.precision]:
        return None
    names = " and ".join(sorted(name.lower() for name in named))
    verb = "is" if len(named) == 1 else "are"
    return f"{names} {verb} not allowed now (precision {context.precision}): nothing to change."
