"""How does a file that somebody wrote by hand become a candidate like any other?

It goes to the same judge and the same clocks: where it is wrong or slow, nothing but the verdict
says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentkernel.agents.planner import default_decisions
from agentkernel.agents.protocols import Attempt, DraftRequest, Goals
from agentkernel.domain.base import sha256_text
from agentkernel.domain.candidate import Candidate, Draft, NoTemplate
from agentkernel.domain.errors import SettingError, one_line
from agentkernel.domain.plan import Analysis, Hypothesis, Plan, Retrieved
from agentkernel.domain.settings import FILE_PREFIX
from agentkernel.domain.target import Target
from agentkernel.tools.problem.problems import LoadedProblem

GIVEN = "given"
"""The one strategy."""
MOST_BYTES = 1_000_000
"""No drop-in is longer: what is, is some other file."""


@dataclass
class FileCoder:
    """Drafts `source` as it stands, once."""

    name: str
    source: str

    def draft(self, problem: LoadedProblem, request: DraftRequest) -> Draft:
        """The text, unless it was tried before: there is no other to offer."""
        if self.tried(request.history):
            return Draft(candidate=None, none=NoTemplate(reason=f"{self.name} was tried before"))
        note = f"as it stands in {self.name.removeprefix(FILE_PREFIX)}"
        candidate = Candidate(
            source=self.source, coder=self.name, round=request.round, strategy=GIVEN, note=note
        )
        return Draft(candidate=candidate)

    def tried(self, history: Iterable[Attempt]) -> bool:
        """True where an attempt has the same text."""
        own = sha256_text(self.source)
        return any(item.candidate.sha256 == own for item in history)


@dataclass(frozen=True)
class FilePlanner:
    """Offers the text of the coder, and nothing once that was tried.

    Another file that was given before has the same strategy: the text tells them apart.
    """

    coder: FileCoder

    def plan(
        self,
        problem: LoadedProblem,
        analysis: Analysis,
        target: Target,
        goals: Goals,
        history: Sequence[Attempt],
        retrieved: Sequence[Retrieved],
        exhausted: Sequence[str] = (),
    ) -> Plan:
        """One hypothesis, of which nobody predicts a time."""
        over = GIVEN in exhausted or self.coder.tried(history)
        idea = Hypothesis(strategy=GIVEN, reason=f"the text of {self.coder.name}")
        return Plan(
            analysis=analysis,
            hypotheses=() if over else (idea,),
            decisions=default_decisions(problem.problem, analysis, goals),
            retrieved=tuple(item.id for item in retrieved),
        )


def file_coder(spec: str) -> FileCoder:
    """The coder of `file:PATH`. Raises SettingError where there is no such text."""
    path = file_coder_path(spec)
    return FileCoder(f"{FILE_PREFIX}{path.name}", read_candidate_file(path))


def file_coder_path(spec: str) -> Path:
    """PATH of `file:PATH`. Raises SettingError where none is named."""
    named = spec.removeprefix(FILE_PREFIX)
    if not named:
        raise SettingError(f"Coder {spec!r} names no file. Expected file:PATH, as file:kernel.py.")
    try:
        return Path(named).expanduser()
    except RuntimeError as error:  # a home that nobody has
        raise SettingError(f"Coder {spec!r}: {one_line(error)}. Expected file:PATH.") from error


def read_candidate_file(path: Path) -> str:
    """The text of `path`, with its line ends as Python reads them. Raises SettingError."""
    expected = "Expected a file of Python that defines ModelNew. Next: mend the path after 'file:'."
    try:
        size = path.stat().st_size
        text = path.read_text(encoding="utf-8-sig") if size <= MOST_BYTES else ""
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else one_line(error)
        raise SettingError(f"Cannot read {str(path)!r}: {why}. {expected}") from error
    if size > MOST_BYTES:
        raise SettingError(f"{str(path)!r} has {size} bytes, the most is {MOST_BYTES}. {expected}")
    if not text.strip():
        raise SettingError(f"{str(path)!r} is empty. {expected}")
    if "\0" in text:
        raise SettingError(f"{str(path)!r} is binary. {expected}")
    return text


__all__ = [
    "GIVEN",
    "FileCoder",
    "FilePlanner",
    "file_coder",
    "file_coder_path",
    "read_candidate_file",
]
