"""Where in a sentence may a request of its own begin?"""

from __future__ import annotations

from agentkernel.chat.language.asides import refers_back
from agentkernel.chat.language.polarity import NOUNS, VERBS
from agentkernel.chat.language.tags import Tag
from agentkernel.chat.language.text import HARD_BREAKS, words_of

CLAUSE_WORDS = words_of("but or so because since cause cuz though although ( )")
"""Words and marks besides "and", comma and colon at which a clause may begin."""
PRONOUNS = frozenset({"it", "this", "that"})


def new_command(tags: tuple[Tag, ...], at: int) -> bool:
    """True for an "and" or a comma with a verb behind it: what follows is a request of its own."""
    if not (tags[at].has("SEP") or tags[at].text == ","):
        return False
    if at and (tags[at - 1].has("SEP") or tags[at - 1].text == ","):
        return False
    if all(tag.has("FILLER", "AGAINST", "PREP", "POLITE", "MARK", "SEP") for tag in tags[:at]):
        return False
    if refers_back(_clause(tags, at)) or _only_gives_up(tags[:at]):
        return False
    rest = [tag for tag in tags[at + 1 :] if not tag.has("SEP", "POLITE", "MARK")]
    if (
        tags[at].has("SEP")
        and len(rest) > 1
        and rest[0].has("TELL")
        and rest[1].has("WHY", "WHAT", "HOW")
    ):
        return True
    if not rest or not rest[0].has(*VERBS) or rest[0].has(*NOUNS, "FILLER"):
        return False
    same_thing = rest[0].text.split(" ")[-1] in PRONOUNS or (len(rest) > 1 and rest[1].has("THIS"))
    verbs = rest[0].concepts & VERBS
    before = frozenset[str]().union(*(tag.concepts for tag in tags[:at]))
    return not same_thing or (
        tags[at].has("SEP") and verbs.isdisjoint(before) and _acts_on_a_candidate(tags[:at])
    )


def _only_gives_up(tags: tuple[Tag, ...]) -> bool:
    """ "forget bf16": what is wanted instead follows."""
    return any(tag.has("INSTEADOF") for tag in tags) and not any(tag.has(*VERBS) for tag in tags)


def _clause(tags: tuple[Tag, ...], at: int) -> tuple[Tag, ...]:
    """From `at` to the next comma or the next "and"."""
    ends = [
        end
        for end in range(at + 1, len(tags))
        if tags[end].has("SEP") or tags[end].text in (",", ":")
    ]
    return tags[at : ends[0] if ends else len(tags)]


def _acts_on_a_candidate(tags: tuple[Tag, ...]) -> bool:
    """True for "keep 7": a command with the candidate that it is about."""
    return any(tag.has(*VERBS) for tag in tags) and any(tag.has("NUM", "CAND") for tag in tags)


def begins_clause(tags: tuple[Tag, ...], at: int) -> bool:
    """True for an "and", a mark, or a word such as "because", with words behind it."""
    tag = tags[at]
    if all(behind.has("MARK") for behind in tags[at:]):
        return False
    if tag.has("SEP") or tag.text in (",", ":") or tag.text in HARD_BREAKS:
        return True
    return at > 0 and tag.text in CLAUSE_WORDS


def may_begin(tag: Tag) -> bool:
    """True for a word such as "for" or "until": what follows may say how or where."""
    return tag.has("PREP", "UNTIL") or tag.text.split(" ")[0] in ("until", "within", "under")
