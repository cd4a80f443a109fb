"""Which words of a sentence does a "not" reach, and is the sentence a question?"""

from __future__ import annotations

from dataclasses import replace

from agentkernel.workflows.intents.tags import Tag, negated
from agentkernel.workflows.intents.text import words_of

PRECISIONS = frozenset({"TF32", "BF16", "STRICT", "REDUCED", "FP32"})
SLOTS = PRECISIONS | {"TARGET", "CAND", "IDEA", "DTYPE", "LIBRARY", "ORD", "LOCAL"}
"""Concepts of which a sentence may name one and rule out another: "bf16, not tf32"."""
NOUNS = SLOTS | {"MEMORY", "ENERGY", "KERNEL", "DIFF", "TIMES", "SHAPE", "NUM", "ROUNDS"}
VERBS = frozenset(
    {"USE", "RUN", "SHOW", "KEEP", "RETURN", "STOP", "TRY", "ALLOW", "UNDO", "FORK", "SAVE"}
)
END_OF_REACH = frozenset({"but", "instead", "just", "only", ",", ";", ":"})
QUESTION_STARTS = words_of(
    "is are was were does did has had should will would could can may might must am"
)
BEFORE_A_QUESTION = words_of("and so but then , ok okay hey please well now also hmm hi hello wait")


def with_polarity(tags: list[Tag]) -> list[Tag]:
    """The tags of one sentence, marked where they are negated or ruled out."""
    marked = [_no(tags, at) for at in range(len(tags))]
    for at, tag in enumerate(marked):
        if tag.has("NEG"):
            for place in _reach(marked, at):
                marked[place] = negated(marked[place])
        elif tag.has("INSTEADOF"):
            _rule_out_next(marked, at)
        elif _leaves(marked, at):
            marked[at + 1] = negated(marked[at + 1])
            marked[at] = replace(tag, concepts=frozenset({"INSTEADOF"}))
    return marked


def _leaves(tags: list[Tag], at: int) -> bool:
    """ "from tf32" where a "to" follows."""
    return (
        tags[at].text == "from"
        and any(tag.text == "to" for tag in tags[at + 1 :])
        and tags[at + 1].has(*PRECISIONS, "TARGET", "DTYPE")
    )


def _no(tags: list[Tag], at: int) -> Tag:
    """ "no" before a noun is a "not"; by itself it is an answer."""
    if tags[at].text != "no":
        return tags[at]
    last = at + 1 == len(tags) or tags[at + 1].has("MARK", "SEP")
    return replace(tags[at], concepts=frozenset({"NO" if last else "NEG"}))


def _reach(tags: list[Tag], at: int) -> list[int]:
    """Places that the "not" at `at` speaks of: up to a mark, a "but" or the next verb; where it
    ends a statement ("tf32 is not allowed"), what that statement is about."""
    found: list[int] = []
    noun = joined = False
    for place in range(at + 1, len(tags)):
        tag = tags[place]
        if tag.text in END_OF_REACH and not (tag.text in ("just", "only") and not found):
            break
        joined = joined or tag.text in ("and", "or", "then")
        if noun and not joined and tag.has(*VERBS) and not tag.has(*NOUNS, "FILLER"):
            break
        noun = noun or tag.has(*NOUNS)
        found.append(place)
    if all(tags[place].has("FILLER", "ALLOW", "THIS") for place in found):
        for place in range(at - 1, -1, -1):
            if tags[place].text in END_OF_REACH or tags[place].has("SEP"):
                break
            if tags[place].has(*NOUNS):
                found.append(place)
    return found


def _rule_out_next(tags: list[Tag], at: int) -> None:
    """The first slot behind "instead of" is what is not wanted."""
    for place in range(at + 1, len(tags)):
        if tags[place].has(*SLOTS):
            tags[place] = negated(tags[place])
            return


def is_question(tags: list[Tag]) -> bool:
    """True where the words, marks aside, are put as a question: "is tf32 allowed"."""
    for tag in tags:
        if tag.text in BEFORE_A_QUESTION:
            continue
        first = tag.text.split(" ")[0]
        return tag.has("WHAT", "WHERE", "WHY", "HOW", "WHEN", "AUX") or (
            first in QUESTION_STARTS and not tag.has("POLITE", "MAY")
        )
    return False
