"""A sentence in plain wording: shorthand spelt out, and without what asks for nothing in it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from functools import lru_cache

SHORTHAND = (
    (r"\bw/ ?o\b", "without"),
    (r"\bw/ ?(?=\w)", "with "),
    (r"\b(?:r|are) u\b", "are you"),
    (r"\b(?:adn|nd)\b", "and"),
    (r"\bmem\b", "memory"),
    (r"\brnds?\b", "rounds"),
    (r"\biters?\b", "iterations"),
    (r"\bthru\b", "through"),
    (r"\byesterdays\b", "yesterday's"),
    (r"\b(how|where|why|what)'d\b", r"\1 did"),
    (r"\bwhy's\b", "why is"),
)
SPELT = (
    "show", "triton", "code", "kernel", "candidate", "compile", "profile", "source", "fast",
    "faster", "block", "blocks", "launch", "launches", "measure",
)  # fmt: skip
"""Words that are looked for where one is misspelt by a letter or two."""
MEANT = ("lock", "measured", "measures")
"""Words that are near one of them and are meant as they stand."""
NEAR = 0.88
BEFORE = re.compile(
    r"^(?:(?:no wait|wait|hold on|hmm+|oh|ok(?:ay)?|sorry|actually)[, ]+|nah[, ]+(?=go |back"
    r"|try ))+"
    r"|^keep (?:the )?(?:current |same )?(?:warps|stages|blocks?(?: sizes?)?|registers)"
    r"(?:,? but|,? and|,) ",
    re.I,
)
BEHIND = re.compile(
    r",? (?:even if (?:it|that|this) (?:costs?|takes?|is|means)\b[^,;.?]*"
    r"|(?:i'm |just )?trying to (?:convince|persuade|show|prove to)\b[^,;.?]*"
    r"|(?:one|a) program per sm|for this one|without (?:any )?changes|(?<=\w )after(?:wards)?"
    r"|after(?:wards)?)(?=[,;.?!]|$)",
    re.I,
)
SENTENCE_ENDS = re.compile(r"(?<=[.?!])\s+")
ON_TARGET = re.compile(
    r"(?P<before>(?:now )?(?:for (?:[a-z]+ \d+|\d+ [a-z]+)(?:,|,? and)? )?)"
    r"on (?P<gpu>(?:an? |the )?(?P<name>[\w-]+)(?:,? please)?[.!]?)",
    re.I,
)
"""A GPU by itself or behind a size, with no question mark."""
STATES = re.compile(r"(?:i|we|my|mine|ours?|those|these|it|it's|they)\b", re.I)
DEMANDS = re.compile(r"\b(?:want|need|must|should|would like|please|prefer)\b", re.I)


def wordings(text: str, refused: bool) -> tuple[str, ...]:
    """Other wordings of what was not understood: spelt out, and where it was `refused` and not
    asked about, also without its asides. Only those that differ from `text`."""
    spelt = spelt_out(text)
    plain = without_asides(spelt) if refused else spelt
    return tuple(item for item in dict.fromkeys((spelt, plain)) if item != text and item)


def for_target(text: str, targets: Collection[str]) -> str:
    """ "on an A100" as "for an A100": said by itself it wishes that target, and asks nothing."""
    found = ON_TARGET.fullmatch(text)
    known = found is not None and found["name"].lower() in targets
    return f"{found['before']}for {found['gpu']}" if found is not None and known else text


def spelt_out(text: str) -> str:
    """The same words without shorthand, and misspelt ones of a kernel as they are spelt."""
    for pattern, plain in SHORTHAND:
        text = re.sub(pattern, plain, text, flags=re.I)
    return " ".join(_spelt(word) for word in text.split(" "))


@lru_cache(2**10)
def _spelt(word: str) -> str:
    lower = word.lower()
    if not lower.isalpha() or len(lower) < 4 or lower in (*SPELT, *MEANT):
        return word
    turned = next((known for known in SPELT if sorted(known) == sorted(lower)), None)
    return turned or next(iter(difflib.get_close_matches(lower, SPELT, 1, NEAR)), word)


def without_asides(text: str) -> str:
    """The same without a hesitation before, a reason behind, and statements beside a question."""
    bare = BEHIND.sub("", BEFORE.sub("", text.strip()))
    parts = SENTENCE_ENDS.split(bare)
    if any(part.endswith("?") for part in parts):
        kept = [part for part in parts if part.endswith("?") or not _only_states(part)]
        bare = " ".join(kept)
    return bare.strip()


def _only_states(part: str) -> bool:
    return bool(STATES.match(part)) and not DEMANDS.search(part)
