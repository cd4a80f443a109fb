"""Which values may a request take, and does a sentence hold just those?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from agentkernel.chat.intent import AskDocs, CandidateName, Intent, IntentContext, SwitchBranch
from agentkernel.chat.language.building import InvalidValues, build_intents
from agentkernel.chat.language.features import is_value
from agentkernel.chat.language.grammar import Item, Row
from agentkernel.chat.language.matching import Match
from agentkernel.chat.language.tags import Tag

REF = frozenset({"CAND", "ORD", "NUM"})
PRECISIONS = frozenset({"TF32", "BF16"})


@dataclass(frozen=True, slots=True)
class SlotRule:
    """`kinds`: the values that may be there; `least` and `most` of them. `beside`: a concept that
    a bare number needs beside it."""

    kinds: frozenset[str] = frozenset()
    least: int = 0
    most: int = 0
    beside: frozenset[str] = frozenset()


ON_ONE = SlotRule(REF, 0, 1)
SLOTS: dict[str, SlotRule] = {
    **dict.fromkeys(get_args(CandidateName), ON_ONE),
    "return_to": SlotRule(REF, 1, 1),
    "run": SlotRule(frozenset({"ROUNDS", "DURATION"}), 0, 1),
    "less_memory": SlotRule(frozenset({"HALF", "PERCENT", "TIMES"}), 0, 1),
    "memory_limit": SlotRule(frozenset({"BYTES"}), 1, 1),
    "precision=tf32": SlotRule(frozenset({"TF32"}), 1, 2),
    "precision=bf16": SlotRule(frozenset({"BF16"}), 1, 2),
    "precision=strict": SlotRule(PRECISIONS | {"FP32", "STRICT"}, 0, 4),
    "target": SlotRule(frozenset({"TARGET"}), 1, 1),
    "shapes": SlotRule(
        frozenset({"SHAPELIT", "SIZE", "NUM"}), 0, 6, frozenset({"SIZENAME", "SIZE", "SHAPE"})
    ),
    "dtype": SlotRule(frozenset({"DTYPE", "BF16", "FP32"}), 1, 1),
    "explain_line": SlotRule(REF | {"LINE"}, 0, 2, frozenset({"LINE", "LINEWORD"})),
    "edit": SlotRule(REF | {"LINE"}, 0, 2, frozenset({"CANDWORD", "KERNEL"})),
    "diff": SlotRule(REF, 0, 2),
    "compare": SlotRule(REF, 1, 2),
    "try_idea": SlotRule(frozenset({"IDEA", "ORD", "NUM"}), 1, 1, frozenset({"IDEAWORD"})),
    "undo": SlotRule(frozenset({"STEPS"}), 0, 1),
    "switch_branch": SlotRule(
        frozenset({"BRANCHNO", "BRANCHNAME", "NUM", "CAND"}), 0, 1, frozenset({"BRANCH", "FORK"})
    ),
    "stop_at": SlotRule(frozenset({"TIMES", "FACTOR", "RUNTIME", "PERCENT"}), 1, 1),
    "budget": SlotRule(frozenset({"DURATION", "ROUNDS", "MONEY"}), 1, 2),
    "save": SlotRule(REF | {"PATH"}, 0, 2),
    "export": SlotRule(frozenset({"PATH"}), 0, 1),
}
"""By label; a request that is not named here takes no value."""
NEVER = frozenset({"approve", "decline", "none"})
"""Labels that only the grammar reads: an answer is short, and a wrong "yes" does harm."""
NAMES_BY_PLACE = frozenset({"original", "fastest", "last", "current"})


def intent_of(
    label: str, tags: tuple[Tag, ...], context: IntentContext, shown: str
) -> Intent | None:
    """The request of this label with all of the values of `tags`; None where one does not fit."""
    name, _, value = label.partition("=")
    if label in NEVER:
        return None
    if name == "ask_docs":
        return _question(tags, shown)
    slots = SLOTS.get(label, SlotRule())
    values = _wanted([tag for tag in tags if is_value(tag)], slots)
    if not slots.least <= len(values) <= slots.most or _odd_word(tags):
        return None
    if any(not tag.has(*slots.kinds) for tag in values) or not _mood_of_values(label, values):
        return None
    bare = [tag for tag in values if tag.has("NUM")]
    if bare and slots.beside and not any(tag.has(*slots.beside) for tag in tags):
        return None
    if not _one_of_a_kind(values, label):
        return None
    if name == "explain_line" and not any(tag.has("LINE", "LINEWORD") for tag in tags):
        return None
    found = _built(name, value, values, tags, context, shown)
    if name == "switch_branch" and isinstance(found, SwitchBranch):
        return _branch(found, values)
    return found


def _branch(found: SwitchBranch, values: list[Tag]) -> Intent | None:
    """ "the other branch, number 3" names it by the number alone."""
    for tag in values:
        if tag.has("CAND") and not tag.text.startswith("number"):
            return None
        if tag.has("NUM", "CAND") and isinstance(tag.value, int | float) and tag.value >= 1:
            return SwitchBranch(branch=int(tag.value))
    return found


def _built(
    name: str,
    value: str,
    values: list[Tag],
    tags: tuple[Tag, ...],
    context: IntentContext,
    shown: str,
) -> Intent | None:
    names = [tag for tag in tags if tag.has("SIZENAME") and tag not in values]
    filled = tuple((Item(tag.concepts, True, False), tag) for tag in (*values, *names))
    row = Row(name, value or None, True, False, "act", (), frozenset())
    try:
        found = build_intents(Match(row, filled, 0.0), context, shown)
    except InvalidValues:
        return None
    return found[0] if len(found) == 1 else None


def _wanted(values: list[Tag], slots: SlotRule) -> list[Tag]:
    """Without what only describes: "the winner" beside a number, "the baseline" of a speedup."""
    numbered = any(tag.has(*REF) and not isinstance(tag.value, str) for tag in values)
    return [
        tag
        for tag in values
        if not (
            tag.has("CAND")
            and tag.value in NAMES_BY_PLACE
            and (not slots.kinds & REF or (numbered and tag.value != "original"))
        )
    ]


def _mood_of_values(label: str, values: list[Tag]) -> bool:
    """No value is ruled out, but a precision where the strict one is wanted."""
    if label == "precision=strict":
        return all(tag.negated or not tag.has(*PRECISIONS) for tag in values)
    return not any(tag.negated for tag in values)


def _one_of_a_kind(values: list[Tag], label: str) -> bool:
    """Two values of one kind only where there is room for both."""
    if label in ("diff", "compare", "shapes", "precision=strict"):
        return True
    texts = {(tuple(sorted(tag.concepts)), tag.value) for tag in values}
    kinds = {"REF" if tag.has(*REF) else min(tag.concepts) for tag in values}
    return len(kinds) == len(values) or len(texts) == 1


def _odd_word(tags: tuple[Tag, ...]) -> bool:
    """True for a word with a digit that is no value (e4m3, int4): nobody knows what it means."""
    return any(
        any(letter.isdigit() for letter in tag.text) and not is_value(tag) and not tag.concepts
        for tag in tags
    )


def _question(tags: tuple[Tag, ...], shown: str) -> Intent | None:
    """The whole question: a search loses nothing by some words more."""
    if not any(tag.has("DOCS") for tag in tags) or any(tag.has("NEG") for tag in tags):
        return None
    query = shown[tags[0].start : tags[-1].end].strip(" .,;:!?\"'")
    return AskDocs(query=query) if query else None
