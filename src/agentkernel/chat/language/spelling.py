"""Which known word was meant by one that is mistyped in a single place?"""

from __future__ import annotations

from functools import cache

from agentkernel.chat.language.words import ORDINARY, entries

SHORTEST = 4
"""Letters; of words under five only those with two letters swapped are read ("shwo")."""


def correct_spelling(word: str) -> str | None:
    """The one known word at distance 1 (a letter more, less, changed, or two swapped) of `word`.

    None where there is none or more than one, for shorter words, and where the first
    letter differs: that is seldom mistyped and tells many words apart (accept, except).
    """
    if len(word) < SHORTEST or word in ORDINARY or not word.isalpha() or len(word) > 30:
        return None
    found = {known for key in _keys(word) for known in _index().get(key, ()) if _near(word, known)}
    if len(word) == SHORTEST:
        found = {known for known in found if sorted(known) == sorted(word) or _is_light(known)}
    return found.pop() if len(found) == 1 else None


def _is_light(known: str) -> bool:
    """Five letters that say nothing: read for four of them without harm ("agin")."""
    return len(known) > SHORTEST and "FILLER" in entries()[known]


def _keys(word: str) -> set[str]:
    """The word, and each word that is left with one letter taken out (never the first)."""
    return {word, *(word[:at] + word[at + 1 :] for at in range(1, len(word)))}


@cache
def _index() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for known in entries():
        if len(known) >= SHORTEST and known.isalpha():
            for key in _keys(known):
                found.setdefault(key, []).append(known)
    return {key: tuple(words) for key, words in found.items()}


def _near(one: str, other: str) -> bool:
    """One place apart: equal up to there and equal behind it."""
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    if at is None:
        return abs(len(one) - len(other)) <= 1
    return (
        one[at + 1 :] == other[at + 1 :]
        or one[at + 1 :] == other[at:]
        or one[at:] == other[at + 1 :]
        or (one[at : at + 2] == other[at : at + 2][::-1] and one[at + 2 :] == other[at + 2 :])
    )
