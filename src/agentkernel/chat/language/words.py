"""Which words stand for which concept?

One row a concept; entries are separated by commas and may be phrases. A word may stand under
several concepts: the grammar's rows say which one is meant.
"""

from __future__ import annotations

from functools import cache

from agentkernel.chat.language.bounds import BOUNDS
from agentkernel.chat.language.nouns import NOUNS
from agentkernel.chat.language.phrasing import PHRASING
from agentkernel.chat.language.talk import TALK
from agentkernel.chat.language.text import words_of
from agentkernel.chat.language.verbs import VERBS

COMPARATIVES = words_of("better faster quicker")
"""Behind "the" and before a noun, "of" or the end they name one of the two that were compared."""
OF_TWO = tuple(
    tuple(phrase.split())
    for phrase in ("of the two", "of those two", "of these two", "of them", "of both")
)
LEXICON: dict[str, str] = {**PHRASING, **VERBS, **NOUNS, **TALK, **BOUNDS}
"""Concept -> its words and phrases."""


PLACES = {
    "last": "last", "latest": "last", "newest": "last", "recent": "last",
    "fastest": "fastest", "best": "fastest", "quickest": "fastest", "winning": "fastest",
    "winner": "fastest", "champion": "fastest", "leader": "fastest",
    "previous": "previous", "prior": "previous", "preceding": "previous", "earlier": "previous",
    "parent": "parent", "predecessor": "parent",
    "original": "original", "baseline": "original", "eager": "original", "reference": "original",
    "current": "current", "present": "current",
    "other": "other",
}  # fmt: skip
"""Adjectives and nouns that name a candidate by its place."""
PLACE_NOUNS = words_of(
    "candidate version variant one kernel attempt solution result run code module candidates "
    "implementation source draft pytorch torch model revision"
)
ALWAYS_A_CANDIDATE = words_of(
    "parent predecessor original baseline winner champion leader fastest best"
)
"""Places that need no noun behind them."""
ORDINARY = words_of("""
    point print share shared stage patch match taken cast casts state block tiled tiles light
    quiet quite later great where there these those their thing think would could should about
    after might while whole white write wrote right night price prize prime trace track trick
    world words weeks hours house horse mouse month mouth other under order older owner lower
    power tower lover cover never fever level lever clean clear plain plane place space spare
    scale store story stone stuff start smart stand brand grand large small still style table
    loops looped unroll unrolled expect except respect inspect aspect tokens broken spoken pencil
    tensor sensor center matter better letter butter water waste taste paste party pasta
    shave shade shake excited editor credit branch brunch ranch french benches bench""")
"""Ordinary words near the lexicon's, which are never read as mistyped ones."""


@cache
def entries() -> dict[str, frozenset[str]]:
    """Word or phrase -> the concepts it may stand for."""
    found: dict[str, set[str]] = {}
    for concept, words in LEXICON.items():
        for word in words.split(","):
            found.setdefault(" ".join(word.split()), set()).add(concept)
    return {word: frozenset(concepts) for word, concepts in found.items() if word}


@cache
def longest_phrase() -> int:
    """Words in the longest phrase."""
    return max(len(phrase.split()) for phrase in entries())
