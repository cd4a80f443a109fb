"""Events of a run, for a screen or a log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from agentkernel.agents.models.protocol import TextPiece
from agentkernel.agents.models.retries import Retry
from agentkernel.domain.base import Frozen
from agentkernel.domain.certificate import Status
from agentkernel.domain.exchange import AgentName, Exchange
from agentkernel.domain.plan import Plan
from agentkernel.domain.profile import KernelResources
from agentkernel.runtime.stages import StageTime
from agentkernel.workflows.outcome import Result

NodeName = Literal["plan", "retrieve", "draft", "judge", "profile", "debug", "decide", "finish"]


class RunStarted(Frozen):
    """The first event. `note`: how the target was chosen; `measurable`: a GPU here can time it."""

    kind: Literal["run_started"] = "run_started"
    run: str
    folder: str
    problem: str
    shapes: tuple[str, ...]
    target: str
    note: str
    measurable: bool
    rounds: int
    time_limit_s: float | None
    resumed: bool
    spent_s: float = 0.0
    warnings: tuple[str, ...] = ()


class NodeStarted(Frozen):
    """A node begins."""

    kind: Literal["node_started"] = "node_started"
    node: NodeName
    round: int
    spent_s: float


class NodeFinished(Frozen):
    """A node ended after `seconds`."""

    kind: Literal["node_finished"] = "node_finished"
    node: NodeName
    round: int
    seconds: float
    spent_s: float


class Planned(Frozen):
    """The plan as it stands; sent by plan, and again by retrieve with what retrieval changed."""

    kind: Literal["planned"] = "planned"
    round: int
    plan: Plan


class CandidateDrafted(Frozen):
    """A candidate is on the table, or `candidate` None with the reason."""

    kind: Literal["candidate_drafted"] = "candidate_drafted"
    round: int
    candidate: str | None
    coder: str
    strategy: str
    parent: str | None = None
    reason: str | None = None
    searched: int = 0
    """Schedules that the coder's search looked at."""
    origin: str | None = None
    """The entry of the knowledge base that it starts from, by id."""


class CandidateSetAside(Frozen):
    """The search saw the candidate too slow: it is judged only if nothing else is accepted."""

    kind: Literal["candidate_set_aside"] = "candidate_set_aside"
    round: int
    candidate: str
    reason: str


class VerdictReached(Frozen):
    """The judge is done with a candidate. `reused`: found in the run's database."""

    kind: Literal["verdict"] = "verdict"
    round: int
    candidate: str
    accepted: bool
    interpreted: bool
    gate: str
    failure: str | None
    undecided: str = ""
    """Why this machine could not decide, where nothing is known against the candidate."""
    error_vs_oracle: float | None
    eager_error_vs_oracle: float | None
    seconds: float
    reused: bool


class ProfileTaken(Frozen):
    """What is known of a candidate's speed; the measured fields are None without a GPU."""

    kind: Literal["profile"] = "profile"
    round: int
    candidate: str
    measured: bool
    measured_on: str | None
    time_us: float | None
    speedup_vs_eager: float | None
    speedup_vs_compile: float | None
    speedup_vs_autotune: float | None = None
    roofline_fraction: float | None
    estimated_time_us: float
    estimated_eager_us: float | None
    kernels: tuple[KernelResources, ...]
    reused: bool


class ProfileMissed(Frozen):
    """A candidate could be neither measured nor estimated; `side` is whose fault it was."""

    kind: Literal["profile_missed"] = "profile_missed"
    round: int
    candidate: str
    side: str
    reason: str
    log: str


class Diagnosed(Frozen):
    """The debugger's answer."""

    kind: Literal["diagnosis"] = "diagnosis"
    round: int
    candidate: str
    failure_class: str
    action: str
    advice: str
    by: str = ""
    """The model that diagnosed; "" for the rules."""


class ModelAsked(Frozen):
    """A model answered. `reused`: from the run's record, at no cost; `cost_usd` None: unknown."""

    kind: Literal["model_asked"] = "model_asked"
    agent: AgentName
    model: str
    round: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cost_usd: float | None
    seconds: float
    gpu_seconds: float = 0.0
    attempts: int = 1
    """Requests it took."""
    reused: bool


class ModelWriting(Frozen):
    """A model writes: new text of its answer, for showing alone; no record keeps it.

    `characters`: of the answer so far, with this text. They are as many as the text has where an
    answer begins, or begins anew after a failed request. Keys are redacted, control characters
    stand there as escapes. `model_asked` follows the last one.
    """

    kind: Literal["model_writing"] = "model_writing"
    agent: AgentName
    model: str
    round: int
    text: str
    characters: int


class ModelRetried(Frozen):
    """A request to a model failed; the next one goes out after `wait_s`."""

    kind: Literal["model_retried"] = "model_retried"
    model: str
    failure: str
    text: str
    attempt: int
    wait_s: float


class ModelPassedOver(Frozen):
    """A model had nothing to say, or could not be reached: the rules stand in for it."""

    kind: Literal["model_passed_over"] = "model_passed_over"
    text: str


class Noted(Frozen):
    """Something worth a line that changes nothing: experience that was kept, or could not be."""

    kind: Literal["noted"] = "noted"
    text: str


class RemoteProgress(Frozen):
    """What another machine does now for the run, or what became of the line to it; for showing
    alone, no record keeps it."""

    kind: Literal["remote_progress"] = "remote_progress"
    host: str
    text: str


class ApprovalAsked(Frozen):
    """The run waits for somebody's word on a plan or a candidate."""

    kind: Literal["approval_asked"] = "approval_asked"
    about: Literal["plan", "candidate"]
    round: int
    strategy: str
    candidate: str | None = None


class ApprovalGiven(Frozen):
    """The word was said, and the run goes on."""

    kind: Literal["approval_given"] = "approval_given"
    approved: bool


class Decided(Frozen):
    """Where the loop goes next, and why it stops if it does."""

    kind: Literal["decision"] = "decision"
    round: int
    next: Literal["approve_candidate", "judge", "draft", "plan", "finish"]
    stop: str | None
    best: str | None
    status: Status
    reason: str


class StagesTimed(Frozen):
    """Where the wall time of one session of a run went, until its result was written; the stages
    that do not overlap add up to `wall_s`."""

    kind: Literal["stages_timed"] = "stages_timed"
    wall_s: float
    stages: tuple[StageTime, ...]


class Finished(Frozen):
    """The last event."""

    kind: Literal["finished"] = "finished"
    result: Result


Event: TypeAlias = Annotated[
    RunStarted
    | NodeStarted
    | NodeFinished
    | Planned
    | CandidateDrafted
    | CandidateSetAside
    | VerdictReached
    | ProfileTaken
    | ProfileMissed
    | Diagnosed
    | ModelAsked
    | ModelWriting
    | ModelRetried
    | ModelPassedOver
    | Noted
    | RemoteProgress
    | ApprovalAsked
    | ApprovalGiven
    | Decided
    | StagesTimed
    | Finished,
    Field(discriminator="kind"),
]
OnEvent: TypeAlias = Callable[[Event], None]


def model_asked(exchange: Exchange, reused: bool) -> ModelAsked:
    """The event for an exchange."""
    usage = exchange.reply.usage
    return ModelAsked(
        agent=exchange.question.agent,
        model=exchange.model,
        round=exchange.question.round,
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        cached_tokens=usage.cached,
        cost_usd=exchange.cost_usd,
        seconds=exchange.reply.seconds,
        gpu_seconds=exchange.reply.gpu_seconds,
        attempts=exchange.attempts,
        reused=reused,
    )


def model_writing(piece: TextPiece) -> ModelWriting:
    """The event for what a model wrote just now."""
    return ModelWriting(**piece._asdict())


def model_retried(retry: Retry) -> ModelRetried:
    """The event for an attempt that failed."""
    return ModelRetried(
        model=retry.model,
        failure=retry.kind,
        text=retry.text,
        attempt=retry.attempt,
        wait_s=retry.wait_s,
    )


def ignore(event: Event) -> None:
    """A listener that does nothing."""
