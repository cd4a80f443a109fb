"""Which clauses of a text only explain a request, and what is left of it without them?

A reason ("because it is faster"), a purpose ("so that I can import it", "in order to ship it"), a
plan ("I want to try something else"), a time ("before I start over") and what is ruled out ("rather
than undoing that") ask for nothing by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentkernel.chat.language.matching import VALUES
from agentkernel.chat.language.patterns import Pattern
from agentkernel.chat.language.tags import Tag
from agentkernel.chat.language.text import HARD_BREAKS, words_of

Kind = Literal["reason", "purpose", "plan", "ruled out", "hesitation"]
SPEAKER = r"(?:i|we)"
OPENERS: tuple[tuple[Kind, Pattern], ...] = (
    (
        "reason",
        Pattern(
            r"(?:because|as a result of|due to|thanks to|given that|seeing that|considering that"
            r"|(?:since|as) (?:i|we|you|they|he|she|it|this|that)\b(?! (?:can|could|like|want)\b))"
        ),
    ),
    (
        "purpose",
        Pattern(
            r"(?:so that|so as to|in order to|in order that|for the sake of|with a view to"
            r"|so (?:i|we|they|he|she|my \w+|our \w+|the \w+) "
            r"(?:can|could|will|would|might|do not|does not|need not|will not|am able|are able)\b"
            rf"|before {SPEAKER} )"
        ),
    ),
    (
        "plan",
        Pattern(
            rf"{SPEAKER} (?:just |also |really |still |only )?(?:want to|wanted to|would like to"
            r"|am going to|are going to|am planning to|are planning to|plan to|intend to|hope to"
            r"|am about to|are about to|am trying to|are trying to|would love to)\b"
        ),
    ),
    (
        "ruled out",
        Pattern(r"(?:instead of|rather than|in place of|as opposed to|do not|never) "),
    ),
    ("hesitation", Pattern(r"(?:wait|hold on|hang on|hold it|one moment|one second) [,.!] ")),
)
"""How a clause of each kind begins."""
LEADING = Pattern(r"to (?!the\b|an?\b|my\b|c\d)[a-z]+ ")
"""A purpose that stands before its request: "to save memory, use bf16"."""
ACTS = words_of(
    "USE RUN SHOW KEEP RETURN STOP TRY ALLOW UNDO FORK SAVE REJECT EXPORT EXPLAIN COMPARE EDIT "
    "REPAIR VERIFY TELL REDO RESTART FORBID QUIT REDUCE"
)
"""Concepts of verbs by which a request begins."""
DEFINITE = words_of(
    "KEEP UNDO REDO REJECT SAVE EXPORT RETURN RESTART STOP ALLOW FORBID QUIT EDIT REPAIR"
)
"""Verbs of a plan that may be meant as a request: "I want to undo the last change"."""
OPEN = words_of("TRY USE RUN SHOW FILLER")
NAMES = words_of("CAND ORD LINE LINEWORD")
"""Values that name what is there and set nothing."""
DEMANDS = words_of("must should has need needs only please")
BEFORE_A_VERB = ("SEP", "POLITE", "MARK", "MAY", "BUT")
PLAIN_TEXT = words_of("please just now also so kindly maybe")
INFORMS = Pattern(r"as (?:i|we) (?:only|just|do|am|are|have|never|always)\b")
WEIGHTLESS = ("FILLER", "POLITE", "MARK", "SEP", "BUT", "MAY", "THIS", "PREP")
WISHES = Pattern(
    r"^(?:\W|and |so |but |ok |please )*(?:i|we) (?:want|would like|need|wish|am going|plan)"
)


@dataclass(frozen=True, slots=True)
class SplitText:
    """`request`: the tags without the clauses that explain. `cut`: there were some. `weighs`: one
    of them holds something that may be meant as a request too."""

    request: tuple[Tag, ...]
    cut: bool
    weighs: bool


@dataclass(frozen=True, slots=True)
class _Clause:
    kind: Kind
    start: int
    end: int


def split_explanations(tags: Sequence[Tag]) -> SplitText:
    """The text apart from what explains it.

    A clause that stands first is set aside only where a comma ends it, a request follows, and
    nothing in it is a value that the request may speak of.
    """
    kept: list[Tag] = []
    cut: list[_Clause] = []
    at = 0
    while at < len(tags):
        clause = _clause_at(tags, at)
        if clause is None:
            kept.append(tags[at])
            at += 1
        else:
            cut.append(clause)
            at = clause.end
    while cut and kept and kept[0].has("MARK"):
        del kept[0]
    weighs = any(_weighs(each.kind, tags[each.start : each.end]) for each in cut)
    return SplitText(tuple(kept), bool(cut), weighs)


def _clause_at(tags: Sequence[Tag], at: int) -> _Clause | None:
    text = " ".join(tag.text for tag in tags[at : at + 8]) + " "
    first = not _says_something(tags[:at])
    if first and LEADING.match(text):
        clause = _Clause("purpose", at, _end("purpose", tags, at))
        return clause if _may_lead(clause, tags) else None
    for kind, opener in OPENERS:
        if opener.match(text):
            clause = _Clause(kind, at, _end(kind, tags, at))
            may = _may_lead(clause, tags) if first else _may_follow(clause, tags)
            if may:
                return clause
    return None


def _may_lead(clause: _Clause, tags: Sequence[Tag]) -> bool:
    if clause.kind == "hesitation":
        return clause.end < len(tags)
    if clause.kind == "plan" or clause.end == len(tags) or tags[clause.end].text not in (",", "!"):
        return False
    if clause.kind == "ruled out" and not _rules_out_an_act(tags[clause.start :]):
        return False
    said = [tag for tag in tags[: clause.start] if not tag.has("MARK", "SEP")]
    if clause.kind == "ruled out" and any(tag.text != "please" for tag in said):
        return False
    rest = tags[clause.end + 1 :]
    held = any(
        tag.has(*VALUES) and not tag.has("FILLER") for tag in tags[clause.start : clause.end]
    )
    points = any(tag.has("THIS") or tag.text in ("there", "them", "those") for tag in rest)
    return _is_request(rest) and not (held and (points or clause.kind != "ruled out"))


def _may_follow(clause: _Clause, tags: Sequence[Tag]) -> bool:
    before, opener = tags[: clause.start], tags[clause.start].text
    if clause.kind == "hesitation" or opener in ("do", "do not", "never"):
        return False
    if clause.kind == "ruled out":
        return _rules_out_an_act(tags[clause.start :])
    if opener == "as" and before[-1].text != ",":
        return bool(INFORMS.match(" ".join(tag.text for tag in tags[clause.start :])))
    if clause.kind == "plan":
        text = " ".join(tag.text for tag in before)
        return before[-1].has("MARK") and not WISHES.match(text)
    return True


def _rules_out_an_act(tags: Sequence[Tag]) -> bool:
    """True for "instead of undoing that", not for "instead of tf32"."""
    behind = [tag for tag in tags[1:4] if tag.text not in ("to", "not")]
    return bool(behind) and behind[0].has(*ACTS) and not behind[0].has(*VALUES)


def _says_something(tags: Sequence[Tag]) -> bool:
    return any(not tag.has(*WEIGHTLESS) for tag in tags)


def _end(kind: Kind, tags: Sequence[Tag], start: int) -> int:
    """Where the clause is over: at a mark that ends a sentence, or where a request begins."""
    if kind == "hesitation":
        return start + 1
    for at in range(start + 1, len(tags)):
        tag = tags[at]
        if tag.text in HARD_BREAKS or (kind == "ruled out" and tag.text == ","):
            return at
        joins = tag.text in (",", ":") or (tag.has("SEP") and _begins(kind, tag))
        if joins and _is_request(tags[at + 1 :]):
            return at
    return len(tags)


def _begins(kind: Kind, tag: Tag) -> bool:
    """ "in order to save and export it" goes on; "and then" begins something else."""
    return kind == "reason" or "then" in tag.text.split()


def _is_request(tags: Sequence[Tag]) -> bool:
    """True where a verb in its plain form, a "not" or a question follows."""
    for tag in tags:
        if tag.has(*BEFORE_A_VERB) or tag.text in PLAIN_TEXT:
            continue
        first = tag.text.split()[0]
        if first in ("i", "we", "it"):
            return False
        inflected = first.endswith(("ed", "ing", "s")) and not first.endswith("ss")
        asks = tag.text in ("do", "does") or tag.has("NEG", "WHY", "WHAT", "WHERE", "HOW")
        return asks or (tag.has(*ACTS) and not tag.has("THIS") and not inflected)
    return False


def _weighs(kind: Kind, tags: Sequence[Tag]) -> bool:
    if kind in ("ruled out", "hesitation"):
        return False
    words = {word for tag in tags for word in tag.text.split()}
    values = any(_sets(tag) for tag in tags)
    if kind == "reason":
        return values and not DEMANDS.isdisjoint(words)
    if values or any(tag.has("IF", "WHEN") and tag.text != "before" for tag in tags):
        return True
    verbs = [tag for tag in tags if tag.has(*DEFINITE) and not tag.has(*OPEN)]
    return bool(verbs) and (kind == "plan" or any(tag.has("SEP") for tag in tags[1:]))


def _sets(tag: Tag) -> bool:
    return tag.has(*VALUES) and not tag.has("FILLER", *NAMES) and tag.text != "one"
