"""Which words of a sentence does a "not" reach, and is the sentence a question?"""

from __future__ import annotations

from dataclasses import replace

from agentkernel.chat.language.patterns import Pattern
from agentkernel.chat.language.tags import Tag, merged, negated
from agentkernel.chat.language.text import words_of

PRECISIONS = frozenset({"TF32", "BF16", "STRICT", "REDUCED", "FP32"})
SLOTS = PRECISIONS | {"TARGET", "CAND", "IDEA", "DTYPE", "LIBRARY", "ORD", "LOCAL"}
"""Concepts of which a sentence may name one and rule out another: "bf16, not tf32"."""
NOUNS = SLOTS | {"MEMORY", "ENERGY", "KERNEL", "DIFF", "TIMES", "SHAPE", "NUM", "ROUNDS"}
VERBS = frozenset(
    {"USE", "RUN", "SHOW", "KEEP", "RETURN", "STOP", "TRY", "ALLOW", "UNDO", "FORK", "SAVE"}
)
END_OF_REACH = frozenset({"but", "instead", "just", "only", ",", ";", ":"})
BOUND = Pattern(
    r"^(?:(?:ever|even|let|it|go|going|take|takes|taking|use|uses|using|spend|spends|spending|allocate|allocating|"
    r"need|run|running|bother|get|getting|be|grow|climb|cost|costs|needs|allocates|runs|exceeds|goes|want|to|for|you|exceed|exceeding|"
    r"this|that|memory|search|keep|peak|last|give|consume|have) )*"
    r"(?:more than|longer than|higher than|bigger than|larger than|greater than|further than|over|"
    r"above|past|beyond|exceed|exceeding)(?: (?:a|the|of|total|about|about a))*$"
)
"""Between a "not" and a value: it is the most that may be."""
LIMITED = ("DURATION", "BYTES", "MONEY", "ROUNDS", "RUNTIME")
MOST_BOUND = 9
GIVEN_UP = frozenset({"forget", "forget about", "never mind", "skip", "scrap", "ditch"})
QUESTION_STARTS = words_of(
    "is are was were does did has had should will would could can may might must am"
)
BEFORE_A_QUESTION = words_of("and so but then , ok okay hey please well now also hmm hi hello wait")


def with_polarity(tags: list[Tag]) -> list[Tag]:
    """The tags of one sentence, marked where they are negated or ruled out."""
    marked = _bounded([_no(tags, at) for at in range(len(tags))])
    if _is_cleft(marked):
        marked[0] = replace(marked[0], concepts=frozenset({"FILLER"}))
    for at, tag in enumerate(marked):
        if tag.has("NEG"):
            for place in _reach(marked, at):
                marked[place] = negated(marked[place])
        elif tag.has("INSTEADOF"):
            _rule_out_next(marked, at)
        elif _gives_up(marked, at):
            _rule_out_next(marked, at)
            marked[at] = replace(tag, concepts=frozenset({"INSTEADOF"}))
        elif _restricts(marked, at):
            marked[at] = replace(tag, concepts=frozenset({"FOREIGN"}))
        elif _leaves(marked, at):
            marked[at + 1] = negated(marked[at + 1])
            marked[at] = replace(tag, concepts=frozenset({"INSTEADOF"}))
    return marked


def _bounded(tags: list[Tag]) -> list[Tag]:
    """ "do not go over" before a value is "at most"."""
    found: list[Tag] = []
    at = 0
    while at < len(tags):
        value = _bound_value(tags, at) if tags[at].has("NEG") else None
        if value is None:
            found.append(tags[at])
            at += 1
        else:
            concept = "UNTIL" if tags[value].has("TIMES") else "ATMOST"
            found += [merged(tags[at:value], concept, None), tags[value]]
            at = value + 1
    return found


def _bound_value(tags: list[Tag], at: int) -> int | None:
    """The place of the value that the "not" at `at` makes a limit."""
    for place in range(at + 2, min(at + MOST_BOUND, len(tags))):
        if tags[place].has(*LIMITED, "TIMES"):
            between = " ".join(tag.text for tag in tags[at + 1 : place])
            return place if BOUND.match(between) else None
    return None


def _is_cleft(tags: list[Tag]) -> bool:
    """ "what I deploy on is an L4": a statement."""
    texts = [tag.text for tag in tags]
    return (
        texts[0] == "what"
        and texts[1:2] in (["i"], ["we"], ["my"], ["our"])
        and not {"is", "are"}.isdisjoint(word for text in texts[2:] for word in text.split())
        and texts[-1] != "?"
    )


def _gives_up(tags: list[Tag], at: int) -> bool:
    """ "forget the h100" where another of its sort follows."""
    if tags[at].text not in GIVEN_UP:
        return False
    slots = [tag for tag in tags[at + 1 :] if tag.has(*PRECISIONS, "TARGET")]
    kinds = [tag.has("TARGET") for tag in slots[:2]]
    near = [tag for tag in tags[at + 1 : at + 4] if tag.has(*PRECISIONS, "TARGET")]
    return bool(near) and len(kinds) == 2 and kinds[0] == kinds[1]


def _restricts(tags: list[Tag], at: int) -> bool:
    """ "only for the first layer", "for the weights only": no setting has such a reach."""
    if tags[at].text != "only" or not any(tag.has(*PRECISIONS, "LIBRARY") for tag in tags[:at]):
        return False
    behind = tags[at + 1].text if at + 1 < len(tags) else ""
    if behind in ("for", "in", "on", "when", "if", "at", "with"):
        return True
    return any(tag.text == "for" for tag in tags[:at]) and not tags[at - 1].has(*SLOTS)


def _leaves(tags: list[Tag], at: int) -> bool:
    """ "from tf32" where a "to" follows."""
    return (
        tags[at].text == "from"
        and any(tag.text == "to" for tag in tags[at + 1 :])
        and tags[at + 1].has(*PRECISIONS, "TARGET", "DTYPE")
    )


def _no(tags: list[Tag], at: int) -> Tag:
    """ "no" before a noun is a "not"; by itself it is an answer."""
    text = tags[at].text
    if text != "no" and not (tags[at].has("NO") and text.split(" ")[-1] == "not"):
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
