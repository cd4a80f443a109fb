"""Which advice of an entry can a schedule follow?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

FAMILIES = ("attention", "column", "gemm", "pointwise", "row")
"""First parts of the keys that advise a schedule. Others (`precision`, `focus`) are the user's."""
MOST_DIGITS = 5
"""Of any number below; longer ones are not even read."""
TILE_SIDES = {"attention": 2, "gemm": 3}
"""Numbers in a tile: queries x keys; M x N x K."""


class Range(NamedTuple):
    """From `least` to `most`, both included."""

    least: int
    most: int
    powers_of_two: bool = False

    def holds(self, value: int) -> bool:
        """True where `value` lies in it."""
        power = value > 0 and value & (value - 1) == 0
        return self.least <= value <= self.most and (power or not self.powers_of_two)


WARPS = Range(1, 32, powers_of_two=True)
"""A program has at most 1024 threads, 32 a warp."""
STAGES = Range(1, 8)
"""Deeper pipelines than 8 fit no shared memory with tiles worth having."""
BLOCK = Range(32, 65536, powers_of_two=True)
"""Elements that a program holds: an element a lane, up to what registers hold of a row."""
TILE = Range(16, 512, powers_of_two=True)
"""A side of a tile: a dot needs 16."""
COUNT = Range(1, 65536)
SWITCH = Range(0, 1)
NUMBERS: Mapping[str, Range] = {
    "num_warps": WARPS,
    "loop_warps": WARPS,
    "num_stages": STAGES,
    "block": BLOCK,
    "loop_block": BLOCK,
    "persistent_limit": COUNT,
    "split_programs": COUNT,
    "invariant_first": SWITCH,
}
"""Last part of a key -> what it may be."""
WORDS: Mapping[str, tuple[str, ...]] = {
    "precision": ("ieee", "tf32", "tf32x3"),
    "transpose_b": ("true", "false"),
}
"""Last part of a key -> the words that it may be."""


def number_in(key: str, text: str | None) -> int | None:
    """The number that `text` gives for `key`; None where there is none, or none in range."""
    bounds = NUMBERS.get(key.rpartition(".")[2])
    value = _digits(text or "")
    return value if bounds is not None and value is not None and bounds.holds(value) else None


def tile_in(key: str, text: str | None) -> tuple[int, ...] | None:
    """The sides of the tile ("128x64x32") for `key`; None where one is missing or not in range."""
    count = TILE_SIDES.get(key.partition(".")[0])
    parts = (text or "").split("x") if len(text or "") <= 3 * (MOST_DIGITS + 1) else []
    sides = [value for value in map(_digits, parts) if value is not None and TILE.holds(value)]
    return tuple(sides) if len(sides) == len(parts) == count else None


def can_follow(key: str, value: str) -> bool:
    """True where `key` is one that schedules know, and `value` lies in its range."""
    family, _, rest = key.partition(".")
    last = rest.rpartition(".")[2]
    if family not in FAMILIES:
        return False
    if last == "tile":
        return tile_in(key, value) is not None
    return value in WORDS.get(last, ()) or number_in(key, value) is not None


def _digits(text: str) -> int | None:
    plain = text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
    return int(text) if plain else None
