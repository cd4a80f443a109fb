"""Which clauses of a sentence ask for nothing of their own, and may be passed over?

A reason or a feeling beside a request ("that one was nicer", "since this is only inference"), and
a clause that only points back at what was just said ("so use those"). A clause is passed over only
where it states something: no value, no "not", no condition, no demand, and no word that speaks of
any request but those that are made beside it.
"""

from __future__ import annotations

from agentkernel.chat.language.matching import VALUES
from agentkernel.chat.language.patterns import Pattern
from agentkernel.chat.language.tags import Tag
from agentkernel.chat.language.text import words_of

SUBJECTS = words_of(
    "i we it this that these those they he she there my our his her their the its everything "
    "everyone somebody someone people"
)
FINITE = words_of(
    "is are was were am has had have looks look seems seem feels feel sounds sound matters matter "
    "counts count works runs needs keeps gets comes goes means"
)
"""Verb forms that make a statement of what stands before them."""
REASONS = words_of("because since as cause cuz though although given which")
DEMANDS = words_of(
    "want wants wanted need needs must should shall ought would could may might can prefer wish "
    "rather please let try ensure never remember suggest expect you your yourself "
    "said says say told asked asks suggested suggests thinks think claims wrote"
)
"""Words by which a clause asks for something, whatever that is."""
OWN_PURPOSE = Pattern(r"^(?:because |since |as )?(?:i|we) (?:need|have|want|plan|am going) to ")
"""What the speaker is about to do is no demand: "I need to hand this over"."""
BEFORE = Pattern(r"^before (?:you|we|i) \w+")
NO_STATEMENT = words_of("NEG NO YES IF WHEN WHY WHERE HOW WHATDOES MAY ADVICE FOREIGN INSTEADOF")
GENERIC = words_of(
    "FILLER THIS PREP MARK SEP BUT AUX PAST ITIS AGAINST OUT OR USE TRY SHOW TELL SPENT DROPIN "
    "COMMENT AFTER GOAL POLITE OTHER ALLOW STATUS CANDWORD TARGETWORD PRECISION RUN WHAT "
    "KERNEL TIME"
)
"""Concepts of words so common that a statement with them speaks of no request."""
LEAD = (
    r"(?:(?:so|and|then|please|just|also|let us|you can|you may|we can|we could|could you|can you|"
    r"i want you to|go ahead and|kindly|,|\.|;|:|-) )*"
)
TAIL = r"(?: (?:please|instead|then|now|too|for now|from now on|ok|thanks|!|\.))*$"
BACK = Pattern(
    LEAD + r"(?:(?:use|take|try|test|do|go with|go for|stick to|stick with|respect|obey|honou?r|"
    r"stay (?:within|below|under|inside)|aim for|target|assume|work with|keep to|adapt to|"
    r"go ahead with|do it for|(?:tune|optimi[sz]e|compile|build|generate)(?: it| this)? for) "
    r"(?:it|that|this|those|these|them|that one|this one|those ones|that thing|exactly that)|"
    r"give (?:it|that|this|that one|this one) (?:a (?:shot|go|try|whirl|spin|chance)))" + TAIL
)
"""A clause that points back at a setting or an idea."""
BACK_TO_GOAL = Pattern(
    LEAD + r"(?:stop|finish|quit|wrap up|be done|end it) "
    r"(?:there|then|at that|at that point|when you get there|once you get there|"
    r"once you are there|when you are there|if you get there|when we get there)" + TAIL
)
"""A clause that points back at a goal or a budget."""


def refers_back(tags: tuple[Tag, ...]) -> bool:
    """True where the clause only says: use what was just named."""
    return bool(BACK.match(_text(tags)))


def ends_at_goal(tags: tuple[Tag, ...]) -> bool:
    """True where the clause only says: stop where it was just said."""
    return bool(BACK_TO_GOAL.match(_text(tags)))


def only_states_something(tags: tuple[Tag, ...]) -> bool:
    """True where the clause states something and asks for nothing, whatever it speaks of."""
    if any(tag.negated or tag.has(*NO_STATEMENT) or _is_value(tag) for tag in tags):
        return False
    if any(tag.text == "?" for tag in tags):
        return False
    text = _text(tuple(tag for tag in tags if not tag.has("MARK")))
    words = [word for word in text.split() if word not in ("and", "so", "but", "well", "also")]
    if not words or (not DEMANDS.isdisjoint(words) and not OWN_PURPOSE.match(" ".join(words))):
        return False
    first = words[0]
    return first in SUBJECTS | REASONS or not FINITE.isdisjoint(words[1:4])


def leads_in(tags: tuple[Tag, ...]) -> bool:
    """True for "before you start": a lead to a question."""
    if any(_is_value(tag) or tag.negated for tag in tags):
        return False
    return bool(BEFORE.match(_text(tuple(tag for tag in tags if not tag.has("MARK")))))


def speaks_of(tags: tuple[Tag, ...], known: frozenset[str]) -> bool:
    """True where every word is common, unknown, or one of `known`, the concepts of the requests
    beside it."""
    return all(
        tag.has("FILLER") or tag.concepts <= GENERIC or not tag.concepts.isdisjoint(known - GENERIC)
        for tag in tags
    )


def _is_value(tag: Tag) -> bool:
    return tag.has(*VALUES) and not tag.has("FILLER") and tag.text != "one"


def _text(tags: tuple[Tag, ...]) -> str:
    return " ".join(tag.text for tag in tags)
