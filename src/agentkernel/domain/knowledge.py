"""What is one piece of knowledge, how is it asked for, and what does a hit say of itself?"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentkernel.domain.base import Frozen
from agentkernel.domain.plan import RooflineClass

EntryKind = Literal["pair", "kernel", "note", "fix", "experience"]
"""A module with its Triton code; a packaged kernel; a hardware note; an error or symptom with what
mends it; an accepted candidate of a run."""
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
