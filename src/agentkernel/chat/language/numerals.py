"""Which number do words such as "thirty two" or "a hundred and twenty eight" spell?"""

from __future__ import annotations

from typing import NamedTuple

ORDINALS = {
    "first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7,
    "eighth": 8, "ninth": 9, "tenth": 10, "eleventh": 11, "twelfth": 12,
}  # fmt: skip
UNITS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14,
    "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19,
    "couple": 2, "dozen": 12,
}  # fmt: skip
TENS = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70,
    "eighty": 80, "ninety": 90,
}  # fmt: skip
SCALES = {"hundred": 100, "thousand": 1000}


class Numeral(NamedTuple):
    """A number and how many of the words spell it."""

    value: int
    used: int


def spelled_number(words: list[str]) -> Numeral | None:
    """The longest number that `words` begin with; None where they begin with none."""
    total = current = used = 0
    scaled = False
    for at, word in enumerate(words):
        if word in SCALES and (used or word == "hundred"):
            current = max(current, 1) * SCALES[word]
            scaled = True
            if word == "thousand":
                total, current = total + current, 0
        elif word in TENS and current % 100 == 0 and (scaled or not used):
            current += TENS[word]
        elif word in UNITS and (not used or _fits_behind(words[at - 1], UNITS[word], scaled)):
            current += UNITS[word]
        elif word == "and" and scaled and at == used and _counts(words[at + 1 : at + 2]):
            continue
        else:
            break
        used = at + 1
    return Numeral(total + current, used) if used else None


def _fits_behind(word: str, unit: int, scaled: bool) -> bool:
    """ "two" behind "thirty" or "hundred (and)", but not behind "one"."""
    return (word in TENS and 0 < unit < 10) or (scaled and word in (*SCALES, "and"))


def _counts(words: list[str]) -> bool:
    return bool(words) and (words[0] in UNITS or words[0] in TENS)
