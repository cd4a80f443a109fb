"""Lines that only name another value for what was asked before: "and c3?", "what about b200"."""

from __future__ import annotations

import re

from agentkernel.chat.language.slots import DTYPES, is_value
from agentkernel.chat.language.tagging import Tag
from agentkernel.chat.language.values import CONTRAST, Clause, numbers_of
from agentkernel.chat.requests import (
    AskFact,
    AskGpu,
    Intent,
    IntentContext,
    OnCandidate,
    SetBudget,
    SetDtype,
    SetKnob,
    SetShapes,
    SetTarget,
    StopAt,
)

OPENER = re.compile(
    r"^(?:(?:and|or|also|now|then|same(?: thing)?|again|no|nah|sorry|wait|actually|ok|make (?:it"
    r"|that)"
    r"|rather|i meant?|i mean|what about|how about|try|maybe|once more|but)\b[, ]*)+",
    re.I,
)
LIGHT = (
    "FILLER",
    "PREP",
    "MARK",
    "THIS",
    "SEP",
    "POLITE",
    "OTHER",
    "KERNEL",
    "CANDWORD",
    "SIZENAME",
)
MOST_WORDS = 7
ABOUT_ONE = (OnCandidate, AskFact)
COUNTED = frozenset({"warps", "stages", "registers", "block"})


def read_follow_up(shown: str, context: IntentContext) -> tuple[Intent, ...]:
    """The last request with the value that the line names; none where it says anything else."""
    if not context.last or len(shown.split()) > MOST_WORDS:
        return ()
    opener = OPENER.match(shown.strip())
    bare = CONTRAST.sub("", shown.strip()[opener.end() :] if opener else shown.strip()).rstrip(
        " ?.!"
    )
    clause = Clause(bare, context)
    values = [tag for tag in clause.tags if is_value(tag) and not tag.negated]
    plain = all(tag.has(*LIGHT) or tag in values for tag in clause.tags)
    if len(values) != 1 or not plain:
        return ()
    found = _with(context.last[-1], values[0], clause, opened=opener is not None)
    return (found,) if found is not None and found != context.last[-1] else ()


def _with(last: Intent, value: Tag, clause: Clause, *, opened: bool) -> Intent | None:
    """`last` with the one value; None where it has no place in it."""
    names = value.value if isinstance(value.value, tuple) else ()
    if isinstance(last, AskGpu | SetTarget) and value.has("TARGET") and len(names) == 1:
        return last.evolve(target=str(names[0])) if opened or isinstance(last, AskGpu) else None
    if not opened:
        return None
    if isinstance(last, ABOUT_ONE) and value.has("CAND") and clause.candidate != "current":
        known = not clause.context.candidates or clause.candidate in clause.context.candidates
        return last.evolve(candidate=clause.candidate) if known else None
    numbers = numbers_of(clause)
    if isinstance(last, SetKnob) and last.knob in COUNTED and value.has("NUM") and numbers:
        return last.evolve(value=numbers[0], more=False, former=False) if numbers[0] else None
    number = float(value.value) if isinstance(value.value, int | float) else 0.0
    if isinstance(last, SetShapes) and len(last.sizes) == 1 and value.has("NUM") and numbers:
        size = last.sizes[0].evolve(value=numbers[0]) if numbers[0] else None
        return last.evolve(sizes=(size,)) if size is not None else None
    if isinstance(last, StopAt) and value.has("TIMES") and number > 1:
        return StopAt(speedup=number)
    if isinstance(last, SetBudget) and value.has("DURATION") and number > 0:
        return SetBudget(seconds=number)
    if isinstance(last, SetDtype) and value.has("DTYPE", "BF16") and isinstance(value.value, str):
        dtype = DTYPES.get(value.value, "bfloat16" if value.has("BF16") else None)
        return SetDtype.model_validate({"dtype": dtype}) if dtype else None
    return None
