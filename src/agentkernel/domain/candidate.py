"""Candidates, drafts and the schedules that a search tried."""

from __future__ import annotations

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.formatting import us


class WrittenSegment(Frozen):
    """A segment of a candidate that a model wrote: accepted by the judge alone, and not slower
    than the compiler's alone. Times in microseconds, None where one is not known."""

    key: str
    """Of the segment's problem: equal segments have one file."""
    name: str
    """Its operators."""
    model: str
    source: str
    within: str = ""
    """The strategy of the compiler's candidate that it is a part of."""
    time_us: float | None = None
    before_us: float | None = None
    measured: bool = False

    @property
    def label(self) -> str:
        """For people: `softmax by chat:openai:m, 12.1 µs alone, 15.0 µs before, measured`."""
        if self.time_us is None or self.before_us is None:
            return f"{self.name} by {self.model}, not timed alone"
        basis = "measured" if self.measured else "estimated"
        times = f"{us(self.time_us)} alone, {us(self.before_us)} before"
        return f"{self.name} by {self.model}, {times}, {basis}"


class Candidate(Frozen):
    """One source text that defines `ModelNew`."""

    source: str
    coder: str
    round: int
    parent: str | None = None
    strategy: str = ""
    note: str = ""
    schedule: dict[str, dict[str, int]] = Field(default_factory=dict)
    """Kernel name -> constants chosen for it (tile sizes, num_warps, num_stages)."""
    kernels: tuple[str, ...] = ()
    searched_us: float | None = None
    """Its time in the search for the best schedule, where that measured: for comparing candidates
    of one run, never reported as its speed."""
    forms: tuple[str, ...] = ()
    """How each kernel of a template walks its rows, in the order of the program."""
    origin: str = ""
    """The entry of the knowledge base that it starts from, by id."""
    declared_sizes: bool = False
    """Written for the declared sizes alone: at others it raises."""
    segments: tuple[WrittenSegment, ...] = ()
    """What models wrote of a compiler's candidate."""

    @model_serializer(mode="wrap")
    def _without_none(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """One without such segments reads as ever."""
        found: dict[str, object] = handler(self)
        if not self.segments:
            del found["segments"]
        return found

    @property
    def sha256(self) -> str:
        """Content hash: two candidates with the same text are the same candidate."""
        return sha256_text(self.source)

    @property
    def id(self) -> str:
        """Short name: the first 10 hex digits of the hash."""
        return self.sha256[:10]


OF_CONSTRUCTOR = "this constructor: "
"""How it begins where a drop-in cannot have the module's constructor."""
NO_SCHEDULE = "no schedule of it runs: "
"""How it begins where every schedule was refused; its first reason follows, by kind."""


class NoTemplate(Frozen):
    """The coder has nothing to offer for this problem, and why."""

    reason: str
    uncovered: tuple[str, ...] = ()


class Draft(Frozen):
    """A coder's answer: a candidate, or the reason why there is none.

    `tried` holds the losers of a schedule search, best first, as (strategy, time or None).
    """

    candidate: Candidate | None
    none: NoTemplate | None = None
    tried: tuple[TrialResult, ...] = ()
    shown: str | None = None
    """SHA-256 of the file that a model was asked about, "" for the module alone; None where nobody
    was asked."""


class TrialResult(Frozen):
    """One schedule that a search looked at. `time_us` is measured, `estimated_us` is not."""

    label: str
    sha256: str
    schedule: dict[str, dict[str, int]]
    pruned: str | None = None
    time_us: float | None = None
    estimated_us: float | None = None
    segment: str = ""
    """The part of the model that ran alone, its pattern and its structure's hash; "" for all."""


Draft.model_rebuild()
