"""Does a clause tell what is or what was instead of asking for something?"""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.chat.language.patterns import Pattern
from agentkernel.chat.language.tags import Tag
from agentkernel.chat.language.text import words_of

ASKING = ("SHOW", "TELL", "EXPLAIN", "POLITE", "MAY", "WHAT", "WHERE", "HOW")
DEMANDED = Pattern(r"\b(?:have|has|had|need|needs) to\b|\b(?:must|should)\b")
LEAD = r"^(?:(?:and|but|so|well|ok|hmm|also|then|,|-|:|maybe|perhaps|i think|i guess) )*"
PAST = Pattern(
    LEAD + r"(?:i|we|you|they|he|she|somebody|someone|nobody|everybody|everyone) "
    r"(?:(?:already|just|once|only|never|almost|nearly|also|even|all|both|have|has|had) )*"
    r"(?:[a-z]{2,}(?<!e)ed|used|kept|went|ran|undid|saved|took|dropped|gave|stopped|wrote|said|told"
    r"|thought|did|made|got|tried|chose|threw|put it|began|left|lost|found|came|had)\b"
)
"""What somebody did: "we used tf32", "I have already kept c3"."""
NO_PAST = words_of("need exceed proceed feed speed embed agreed changed wanted")
PAST_FACT = Pattern(
    LEAD + r"(?!what\b|which\b|how\b|why\b)(?:\S+ ){1,5}?"
    r"(?:was|were|used to be|(?:had|has|have) (?:been|passed))\b"
)
"""What held: "the goal was 2x"."""
INVENTORY = words_of("stop_at budget memory_limit precision dtype run shapes policy target")
"""Requests that are not made by what once held."""
HAS = Pattern(
    LEAD + r"(?:i|we|they|there|it|you|this)(?: only| now)? (?:have|has|had|are|were|is|was)\b"
)


def is_statement(tags: Sequence[Tag]) -> bool:
    """True for "we pay for electricity": a statement of a person or a thing, with no word that
    asks."""
    words = [tag for tag in tags if not tag.has("MARK", "SEP") and tag.text not in ("so", "but")]
    return (
        bool(words)
        and words[0].text in ("i", "we", "they", "it", "he", "she")
        and not any(tag.has(*ASKING) for tag in words)
    )


def is_demanded(tags: Sequence[Tag]) -> bool:
    """True for "numerics have to match": what is to hold, not what is to be checked."""
    return bool(DEMANDED.search(_text(tags))) and not any(tag.has("VERIFY") for tag in tags)


def is_reported(tags: Sequence[Tag]) -> bool:
    """True for "it is 2x faster", "it uses cublas": what is, not what is to be."""
    words = [tag for tag in tags if not tag.has("MARK", "SEP")]
    first = words[0].text.split(" ")[0] if words else ""
    text = _text(words).split()
    return (
        first in ("it", "this", "they", "he", "she")
        and not any(tag.has("UNTIL", "STOP", "ATLEAST", "ALLOW", "POLITE", "NEG") for tag in words)
        and not {"should", "must", "needs", "need", "has", "will", "may", "can"}.intersection(text)
    )


def is_past(tags: Sequence[Tag]) -> bool:
    """True for "I allowed tf32 earlier": what was done, not what is to be done."""
    found = PAST.match(_text([tag for tag in tags if not tag.has("MARK")]))
    return found is not None and found[0].split()[-1] not in NO_PAST


def is_past_fact(tags: Sequence[Tag]) -> bool:
    """True for "the goal was 2x"."""
    return bool(PAST_FACT.match(_text(tags)))


def is_inventory(tags: Sequence[Tag]) -> bool:
    """True for "we have 3 candidates": what there is."""
    return bool(HAS.match(_text(tags)))


def _text(tags: Sequence[Tag]) -> str:
    return " ".join(tag.text for tag in tags)
