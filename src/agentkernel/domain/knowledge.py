"""Entries of the knowledge base, queries and hits, and the schedule hints that entries give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from pydantic import Field

from agentkernel.domain.base import Frozen
from agentkernel.domain.plan import RooflineClass

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


EntryKind = Literal["pair", "kernel", "note", "fix", "experience"]
"""A module with its Triton code; a packaged kernel; a hardware note; an error or symptom with what
fixes it; an accepted candidate of a run."""
Verified = Literal["gpu", "interpreter", "no"]
"""Where the answer was seen to compute what the problem says; "no": published as it is."""
ReductionClass = Literal["none", "row", "column", "spatial", "whole", "contraction", "scan"]
"""What is reduced: nothing, the last dimension, another one, several inner ones, all, the inner
dimension of a product, or a running sum."""


class Structure(Frozen):
    """What a problem computes, whatever its names are. None and empty: not known."""

    ops: tuple[str, ...]
    """Canonical names (`knowledge.op_names`) in the order of the program, at most 256."""
    reduction: ReductionClass | None = None
    dtypes: tuple[str, ...] = ()
    """torch's names without "torch."; floating inputs first."""
    rank: int | None = None
    """Dimensions of the first input."""
    roofline: RooflineClass | None = None


class Gain(Frozen):
    """What an accepted candidate was measured at. Ratios are baseline over candidate."""

    gpu: str
    time_us: float = Field(gt=0)
    vs_eager: float | None = None
    vs_compile: float | None = None


class Entry(Frozen):
    """One piece. `id` is its address: `kernelbook/UUID`, `generated/SHA`, `notes/hopper`,
    `fixes/NAME`, `experience/SHA`."""

    id: str
    kind: EntryKind
    title: str
    summary: str = ""
    problem: str = ""
    """PyTorch code; "" for notes and fixes."""
    answer: str
    """Triton code, or the text of a note or fix."""
    passages: tuple[str, ...]
    """What is embedded, a vector each."""
    source: str
    """Where it came from: a repository, a file, a run."""
    licence: str
    verified: Verified = "no"
    structure: Structure | None = None
    architectures: tuple[str, ...] = ()
    """Family names (`hopper`); empty: all."""
    triton: str | None = None
    """The Triton version it was verified with."""
    hints: dict[str, str] = Field(default_factory=dict)
    """Decision key -> value."""
    gain: Gain | None = None
    failures: tuple[str, ...] = ()
    """Experience: what failed on the way, one line each."""
    created: str = ""
    """ISO 8601, UTC."""


class Filters(Frozen):
    """What may be found. An empty field lets all through."""

    kinds: tuple[EntryKind, ...] = ()
    architecture: str | None = None
    """A family; entries for other families only are left out."""
    licences: tuple[str, ...] = ()
    verified: tuple[Verified, ...] = ()
    without_ids: tuple[str, ...] = ()


class Query(Frozen):
    """One question: any of the three parts may be missing."""

    text: str = ""
    """Words or PyTorch code, for the dense index; its identifiers for the lexical one."""
    words: str = ""
    """Identifiers and error text for the lexical index; "": taken from `text`."""
    structure: Structure | None = None
    filters: Filters = Filters()
    limit: int = Field(default=6, ge=1)
    tokens: int | None = Field(default=None, gt=0)
    """Budget over the hits' texts; None: no cut."""


class Score(Frozen):
    """Why a hit is where it is: its 1-based rank in each list (None: not in it) and the value that
    the list was ordered by, and what the fusion made of them."""

    dense: float | None = None
    dense_rank: int | None = None
    lexical: float | None = None
    lexical_rank: int | None = None
    passage: float | None = None
    """By the words of one passage, where `lexical` is by those of the whole."""
    passage_rank: int | None = None
    structural: float | None = None
    structural_rank: int | None = None
    fused: float


class Hit(Frozen):
    """One entry that was found."""

    entry: Entry
    score: Score
    passage: str = ""
    """The passage that lay nearest."""
