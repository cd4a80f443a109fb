"""Reviews by a model of a right candidate: the bottleneck, the fixes and the expected speedup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from agentkernel.agents.answers import JSON, objects_in, without_reasoning
from agentkernel.agents.evidence import Fact, speed_evidence
from agentkernel.agents.models.protocol import Model
from agentkernel.agents.prompts import render, shortened
from agentkernel.agents.protocols import Attempt
from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import ModelUnavailable, NotRecorded, one_line
from agentkernel.domain.exchange import Message, ModelRequest, Reply, Sampling
from agentkernel.domain.plan import Analysis
from agentkernel.domain.profile import Profile
from agentkernel.domain.target import Target

SECTION_MOST = 4_000
MOST_ITEMS = 8
MOST_SPEEDUP = 1_000.0
"""What is said to be faster than this many times is no estimate."""
HEADING = re.compile(
    r"^[ \t]*(?:#{1,6}[ \t]*|\d+[.)][ \t]*)?[*_]{0,3}"
    r"(ANALYSIS|OPTIMI[SZ]ATIONS?|ESTIMATED[ _-]SPEED-?UP)[*_]{0,3}[ \t]*:?[*_]{0,3}[ \t]*",
    re.M | re.I,
)
ITEM = re.compile(r"^[ \t]{0,3}(?:[-*+•]|\d+[.)])[ \t]+", re.M)
NUM = r"(?<![\d.])(\d{1,9}(?:\.\d{1,9})?)(?!\d)"
"""A number of a length that can mean something: no run of digits costs more than to read it."""
RANGE = r"[ \t]*(?:-|–|to)[ \t]*"
TIMES = re.compile(rf"{NUM}(?:[ \t]*[x×])?{RANGE}{NUM}[ \t]*[x×]|{NUM}[ \t]*(?:[x×]|times\b)", re.I)
PERCENT = re.compile(rf"{NUM}[ \t]*(?:{RANGE}{NUM}[ \t]*)?%")
NUMBER = re.compile(NUM)


class Review(Frozen):
    """A review in the sections of its format. `estimated_speedup` is over the reviewed candidate,
    the lower end of a range; None where none is given."""

    analysis: str
    optimizations: tuple[str, ...] = ()
    estimated_speedup: float | None = None
    by: str = ""


@dataclass
class Reviewer:
    """Asks a model for the bottleneck, the fixes and the speedup that it expects."""

    model: Model
    sampling: Sampling

    def review(
        self,
        candidate: Candidate,
        profile: Profile,
        analysis: Analysis | None = None,
        target: Target | None = None,
    ) -> Review:
        """The review of a right candidate. Raises ModelUnavailable."""
        reply = self.ask(candidate, speed_evidence(profile, analysis, target).facts, target)
        read = parse_review(reply.texts[0] if reply.texts else "")
        return read.evolve(by=self.model.name)

    def ask(
        self, candidate: Candidate, facts: Sequence[Fact], target: Target | None = None
    ) -> Reply:
        """What the model says of a right candidate whose profile is `facts`, as it came.

        Raises ModelUnavailable.
        """
        text = render("reviewer", candidate=candidate, facts=facts, target=target)
        question = ModelRequest(
            agent="reviewer",
            round=candidate.round,
            messages=(Message(role="user", text=text),),
            sampling=self.sampling,
        )
        return self.model.ask(question)


class NoReview(Frozen):
    """Why there is none."""

    reason: str


@dataclass
class Reviews:
    """Each candidate's review, asked for once; one that failed is not asked for again."""

    reviewer: Reviewer
    _known: dict[str, Review | NoReview] = field(default_factory=dict)

    def of(self, attempt: Attempt, analysis: Analysis, target: Target) -> Review | NoReview:
        """The review of a right candidate; a value where the model is not there."""
        key = attempt.candidate.sha256
        if key not in self._known:
            self._known[key] = self._asked(attempt, analysis, target)
        return self._known[key]

    def _asked(self, attempt: Attempt, analysis: Analysis, target: Target) -> Review | NoReview:
        if attempt.profile is None:
            return NoReview(reason="its speed is not known")
        try:
            found = self.reviewer.review(attempt.candidate, attempt.profile, analysis, target)
        except NotRecorded:
            raise
        except ModelUnavailable as error:
            return NoReview(reason=one_line(error))
        said = found.analysis or found.optimizations
        return found if said else NoReview(reason=f"{found.by} said nothing that can be read")


def parse_review(text: str) -> Review:
    """The sections of `text`, or of a JSON object in it; prose without any is all analysis."""
    found = sectioned_review(text)
    return found or Review(analysis=shortened(without_reasoning(text).strip(), SECTION_MOST))


def sectioned_review(text: str) -> Review | None:
    """The same, where `text` has the sections that it was asked for; None for prose."""
    said = without_reasoning(text)
    sections = _sections(said) or _json_sections(said)
    if not sections:
        return None
    return Review(
        analysis=shortened(sections.get("analysis", ""), SECTION_MOST),
        optimizations=_items(sections.get("optimizations", "")),
        estimated_speedup=read_speedup(sections.get("speedup", "")),
    )


def read_speedup(text: str) -> float | None:
    """`1.3x`, `1.2-1.5x`, `30% faster` or a bare number: the lower end; None for nonsense."""
    times, percent = TIMES.search(text), PERCENT.search(text)
    if times is not None:
        value = float(times[1] or times[3])
    elif percent is not None:
        value = 1 + float(percent[1]) / 100
    else:
        number = NUMBER.search(text)
        value = float(number[0]) if number else 0.0
    return value if 0 < value <= MOST_SPEEDUP else None


def _sections(text: str) -> dict[str, str]:
    """Each section's text; of several with one name the last."""
    heads = list(HEADING.finditer(text))
    ends = [(head, following.start()) for head, following in pairwise(heads)]
    ends += [(heads[-1], len(text))] if heads else []
    return {_key(head[1]): text[head.end() : end].strip() for head, end in ends}


def _json_sections(text: str) -> dict[str, str]:
    for found in reversed(objects_in(text)):
        sections = {_key(name): _words(value) for name, value in found.items() if _key(name)}
        if sections:
            return sections
    return {}


def _key(name: str) -> str:
    lowered = name.lower()
    if lowered == "analysis":
        return lowered
    if lowered.startswith(("optimiz", "optimis")):
        return "optimizations"
    return "speedup" if lowered.startswith("estimated") else ""


def _words(value: JSON) -> str:
    if isinstance(value, list):
        return "\n".join(f"- {_words(item)}" for item in value)
    return "" if value is None else str(value)


def _items(text: str) -> tuple[str, ...]:
    """The entries of a list, else its paragraphs."""
    parts = ITEM.split(text) if ITEM.search(text) else text.split("\n\n")
    cleaned = [shortened(" ".join(part.split()), SECTION_MOST // 4) for part in parts]
    return tuple(item for item in cleaned if item)[:MOST_ITEMS]
