"""Which words does a text or an identifier hold for the lexical index?"""

from __future__ import annotations

import functools
import keyword
import re
from collections.abc import Iterator
from itertools import chain

WORDS_FORMAT = 2
"""Raised with every change of `words_of` or `stem`: an index made with others is made anew."""
LONGEST_WORD = 48
"""Longer ones are hashes and encoded data."""
MOST_CHARACTERS = 200_000
"""What is read of one text."""

SHORTEST_STEMMED = 3
ENDINGS = (
    ("sses", "ss"),
    ("ies", "y"),
    ("ing", ""),
    ("edly", ""),
    ("ed", ""),
    ("ly", ""),
    ("es", ""),
    ("ss", "ss"),
    ("s", ""),
)
"""Ending -> what stands in its place; the first that fits counts."""

_COMMON = """self cls super init forward args kwargs int str len range print list dict tuple
the an of to on at be by it its this that are was were has have can may will"""
STOP_WORDS = frozenset([*map(str.lower, keyword.kwlist), *_COMMON.split()])
"""Words of nearly every Python file or English sentence."""

_IDENTIFIER = re.compile(r"\w+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+d(?![a-z])|\d+")


def words_of(text: str) -> Iterator[str]:
    """The words of `text`, lower case, in order and with repetitions.

    An identifier gives its parts and, where it has several, the parts joined: `LayerNorm2d`,
    `layer_norm_2d` and `layernorm2d` share `layernorm2d`, the first two also `layernorm`. Dots and
    all punctuation divide. Single characters and stop words are left out.
    """
    return chain.from_iterable(map(_split, _identifiers(text)))


def distinct_words(*texts: str) -> Iterator[str]:
    """Each word of `texts` once, in order."""
    identifiers = dict.fromkeys(chain.from_iterable(map(_identifiers, texts)))
    return iter(dict.fromkeys(chain.from_iterable(map(_split, identifiers))))


@functools.lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """`word` without the endings of English plurals and verbs: `tiles`, `tiled` and `tiling` give
    `til`. Short words and those with digits stay as they are."""
    if len(word) <= SHORTEST_STEMMED or not word.isalpha():
        return word
    for ending, instead in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) + len(instead) >= SHORTEST_STEMMED:
            word = word[: len(word) - len(ending)] + instead
            break
    doubled = len(word) > SHORTEST_STEMMED + 1 and word[-1] == word[-2] and word[-1] not in "ls"
    silent = len(word) > SHORTEST_STEMMED and word.endswith("e")
    return word[:-1] if doubled or silent else word


def stems_of(text: str) -> Iterator[str]:
    """`words_of`, each stemmed."""
    return map(stem, words_of(text))


def distinct_stems(*texts: str) -> Iterator[str]:
    """Each stem of `texts` once, in order."""
    return iter(dict.fromkeys(map(stem, distinct_words(*texts))))


def _identifiers(text: str) -> list[str]:
    return _IDENTIFIER.findall(text, 0, MOST_CHARACTERS)


@functools.lru_cache(maxsize=65_536)
def _split(identifier: str) -> tuple[str, ...]:
    # Only ASCII names are known to be written in camel case.
    found = _PART.findall(identifier) if identifier.isascii() else identifier.split("_")
    parts = [part.lower() for part in found if part]
    joined = "".join(parts)
    words = [*parts, joined] if len(parts) > 1 else parts
    if len(parts) > 2 and parts[-1][0].isdigit():
        words.append("".join(parts[:-1]))
    return tuple(word for word in words if 1 < len(word) <= LONGEST_WORD and word not in STOP_WORDS)
