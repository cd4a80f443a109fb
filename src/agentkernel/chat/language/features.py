"""Which features does the reader by examples see in a part of a sentence?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from zlib import crc32

from agentkernel.chat.language.matching import VALUES
from agentkernel.chat.language.tags import Tag

BUCKETS = 2**14
"""Features are hashed into so many; two that share one are seen as the same."""
LETTERS = (3, 4, 5)
"""Lengths of the pieces of words, by which a mistyped or an inflected word is still known."""
WEIGHTS = {"word": 1.0, "pair": 0.8, "triple": 0.6, "letters": 0.35, "concept": 0.7, "place": 0.8}
"""How much each sort counts before the lengths are made equal."""


def features(tags: Sequence[Tag]) -> dict[int, float]:
    """Bucket -> weight. Values stand as their kind ("4 GB" as BYTES), so that no number matters."""
    found: dict[int, float] = {}
    for sort, text in _named(tags):
        bucket = crc32(f"{sort}:{text}".encode()) % BUCKETS
        found[bucket] = found.get(bucket, 0.0) + WEIGHTS[sort]
    return found


def words_of_tags(tags: Sequence[Tag]) -> list[str]:
    """The words in order, each value as its kind, marks left out but for "?"."""
    found: list[str] = []
    for tag in tags:
        if tag.has("MARK") and tag.text != "?":
            continue
        if is_value(tag):
            found.append("#" + min(tag.concepts & VALUES))
        else:
            found.extend(tag.text.split())
    return found


def is_value(tag: Tag) -> bool:
    """True for a tag with a value that no request may drop."""
    return tag.has(*VALUES) and not tag.has("FILLER") and tag.text != "one"


def _named(tags: Sequence[Tag]) -> Iterator[tuple[str, str]]:
    words = words_of_tags(tags)
    bounded = ["<", *words, ">"]
    for word in words:
        yield "word", word
        if not word.startswith("#"):
            yield from (("letters", piece) for piece in _pieces(f" {word} "))
    for first, second in pairwise(bounded):
        yield "pair", f"{first} {second}"
    for three in zip(bounded, bounded[1:], bounded[2:], strict=False):
        yield "triple", " ".join(three)
    for tag in tags:
        for concept in sorted(tag.concepts - VALUES):
            yield "concept", ("not " if tag.negated else "") + concept
        if is_value(tag):
            yield "place", ("not " if tag.negated else "") + min(tag.concepts & VALUES)


def _pieces(word: str) -> Iterator[str]:
    for length in LETTERS:
        for at in range(len(word) - length + 1):
            yield word[at : at + length]
