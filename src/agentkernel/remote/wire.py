"""What two machines say to each other: a line of JSON each, long texts by their hash.

A text of more than LONG characters stands in a request as `{"$text": SHA-256}`; the worker says
which of them it lacks, and only those are sent. Nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, JsonValue, TypeAdapter

from agentkernel.agents.instruments import InstrumentSettings
from agentkernel.domain.base import INFINITE_AS_TEXT, Frozen, sha256_text
from agentkernel.domain.candidate import Candidate, TrialResult
from agentkernel.domain.certificate import Versions
from agentkernel.domain.problem import Problem
from agentkernel.domain.profile import Profile, ProfileFailed
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import Verdict
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.profiler.session import BaselineTimes, QuickTimes
from agentkernel.tools.search.cost import MatrixWork
from agentkernel.tools.targets import ResolvedTarget

LONG = 256
TEXT = "$text"
ALIVE_S = 15.0
"""How often the one who asks says that it is still there."""
SILENCE_S = 60.0
"""After so long without a word the worker takes it to be gone."""


class Subject(Frozen):
    """What is judged, timed and searched for: a problem with the files that it imports, by their
    path below its root, the target's name, and how the instruments are set."""

    problem: Problem
    files: dict[str, str]
    target: str | None
    settings: InstrumentSettings


class ResolveTarget(Frozen):
    """Which target is meant, and what the machine can do for it."""

    kind: Literal["resolve"] = "resolve"
    target: str | None


class Plain(Frozen):
    """What takes nothing but the subject: start what takes long to start, whether a profile would
    begin at once, times of the baselines, of few calls of them, and how many sources one search has
    the time to compile."""

    kind: Literal["begin", "ready", "baselines", "quick times", "most sampled"]


class Judge(Frozen):
    """Judge a candidate."""

    kind: Literal["judge"] = "judge"
    candidate: Candidate
    settings: JudgeSettings


class TakeProfile(Frozen):
    """Time a candidate, or estimate it."""

    kind: Literal["profile"] = "profile"
    candidate: Candidate


class SpaceSent(Frozen):
    """A space of a search."""

    problem: Problem
    sources: tuple[str, ...]
    labels: tuple[str, ...]
    schedules: tuple[dict[str, dict[str, int]], ...]
    segment: str = ""
    hints: tuple[int, ...] = ()
    matrix: MatrixWork | None = None
    work_us: float = 1.0


class Rank(Frozen):
    """Rank the sources of a space."""

    kind: Literal["rank"] = "rank"
    space: SpaceSent
    target: Target


class Tune(Frozen):
    """Rank the sources of several parts of a model."""

    kind: Literal["tune"] = "tune"
    spaces: tuple[SpaceSent, ...]
    target: Target


Question = Annotated[
    ResolveTarget | Plain | Judge | TakeProfile | Rank | Tune, Field(discriminator="kind")
]
QUESTION: TypeAdapter[Question] = TypeAdapter(Question)
SUBJECT = TypeAdapter(Subject)
RESOLVED = TypeAdapter(ResolvedTarget)
DONE: TypeAdapter[None] = TypeAdapter(None)
READY = TypeAdapter(bool)
VERDICT = TypeAdapter(Verdict)
PROFILE: TypeAdapter[Profile | ProfileFailed] = TypeAdapter(
    Profile | ProfileFailed, config=INFINITE_AS_TEXT
)
BASELINES: TypeAdapter[BaselineTimes | ProfileFailed] = TypeAdapter(
    BaselineTimes | ProfileFailed, config=INFINITE_AS_TEXT
)
QUICK: TypeAdapter[QuickTimes | None] = TypeAdapter(QuickTimes | None)
COUNT = TypeAdapter(int)
TRIALS: TypeAdapter[tuple[TrialResult, ...]] = TypeAdapter(tuple[TrialResult, ...])
TRIALS_BY_SPACE: TypeAdapter[tuple[tuple[TrialResult, ...], ...]] = TypeAdapter(
    tuple[tuple[TrialResult, ...], ...]
)


class Asked(Frozen):
    """A question, with the subject where it has one; texts are packed. `id` is the question's own:
    asked again after a lost line, it is answered once. `left_s`: of the run's time limit."""

    kind: Literal["asked"] = "asked"
    id: str
    question: JsonValue
    subject: JsonValue = None
    left_s: float | None = None


class Texts(Frozen):
    """Texts that the worker lacked, by their SHA-256."""

    kind: Literal["texts"] = "texts"
    texts: dict[str, str]


class Alive(Frozen):
    """Nothing but that somebody is still there."""

    kind: Literal["alive"] = "alive"


class Bye(Frozen):
    """The session is over: nothing of it is kept."""

    kind: Literal["bye"] = "bye"


ToWorker = Annotated[Asked | Texts | Alive | Bye, Field(discriminator="kind")]
TO_WORKER: TypeAdapter[ToWorker] = TypeAdapter(ToWorker)


class Hello(Frozen):
    """The worker's first line. `gpu` is None where there is none."""

    kind: Literal["agentkernel worker"] = "agentkernel worker"
    versions: Versions
    judge_sha256: str
    gpu: str | None


class Missing(Frozen):
    """Texts that the question names and the worker lacks: send them, and ask again."""

    kind: Literal["missing"] = "missing"
    id: str
    sha256: tuple[str, ...]


class StageBegun(Frozen):
    """What the worker does now."""

    kind: Literal["stage"] = "stage"
    id: str
    stage: str


class Answered(Frozen):
    """The answer to a question."""

    kind: Literal["answered"] = "answered"
    id: str
    answer: JsonValue


class Refused(Frozen):
    """There is no answer. `error` names the class of AgentKernelError; "" for a bug."""

    kind: Literal["refused"] = "refused"
    id: str
    error: str
    text: str


FromWorker = Annotated[
    Hello | Missing | StageBegun | Answered | Refused, Field(discriminator="kind")
]
FROM_WORKER: TypeAdapter[FromWorker] = TypeAdapter(FromWorker)


def foreign_version(line: bytes) -> str | None:
    """The version of agentkernel that says hello in words of its own; None for any other line."""
    try:
        said = json.loads(line)
        kind, version = said["kind"], said["versions"]["agentkernel"]
    except (ValueError, TypeError, KeyError, IndexError):
        return None
    own = isinstance(version, str) and kind == Hello.model_fields["kind"].default
    return version if own else None


def packed(value: JsonValue, texts: dict[str, str]) -> JsonValue:
    """`value` with the hash of each long text in its place; `texts` takes these by hash."""
    if isinstance(value, str) and len(value) > LONG:
        digest = sha256_text(value)
        texts[digest] = value
        return {TEXT: digest}
    if isinstance(value, list):
        return [packed(item, texts) for item in value]
    if isinstance(value, dict):
        return {key: packed(item, texts) for key, item in value.items()}
    return value


def hashes(value: JsonValue) -> set[str]:
    """The hashes of all texts that `packed` took out."""
    if isinstance(value, list):
        return {found for item in value for found in hashes(item)}
    if isinstance(value, dict):
        digest = value.get(TEXT)
        if isinstance(digest, str):
            return {digest}
        return {found for item in value.values() for found in hashes(item)}
    return set()


def unpacked(value: JsonValue, texts: Mapping[str, str]) -> JsonValue:
    """What `packed` was given."""
    if isinstance(value, list):
        return [unpacked(item, texts) for item in value]
    if isinstance(value, dict):
        digest = value.get(TEXT)
        if isinstance(digest, str):
            return texts[digest]
        return {key: unpacked(item, texts) for key, item in value.items()}
    return value
