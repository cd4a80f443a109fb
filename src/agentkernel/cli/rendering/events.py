"""Events of a run as plain lines, one each."""

from __future__ import annotations

from agentkernel.cli.rendering.text import show_count, show_ratio, show_us, show_usd
from agentkernel.domain.certificate import Status
from agentkernel.domain.plain_text import plain
from agentkernel.workflows.events import (
    CandidateDrafted,
    CandidateSetAside,
    Decided,
    Diagnosed,
    Event,
    Finished,
    ModelAsked,
    ModelPassedOver,
    ModelRetried,
    ModelWriting,
    NodeFinished,
    NodeStarted,
    Noted,
    Planned,
    ProfileMissed,
    ProfileTaken,
    RemoteProgress,
    RunStarted,
    StagesTimed,
    VerdictReached,
)

STOPS = {
    "met": "the goal is met",
    "headroom": "it is at its roofline",
    "rounds": "that was the last round",
    "time": "the time is used up",
    "tokens": "the tokens are used up",
    "money": "the money is used up",
    "stagnation": "the last drafts were no better",
    "hypotheses": "every idea was tried",
    "estimate": "no idea left is estimated to be faster",
    "declined": "it was declined",
}
"""Why a run's loop ended, in words."""
ENDS: dict[Status, str] = {
    "met": "the goal is met",
    "improved": "faster than the baselines, short of the goal",
    "verified": "right, its time is an estimate",
    "kept_original": "the module stays as it is",
    "kept_compiled": "torch.compile's version stays",
    "failed": "it ended early",
}
"""What came of a run, in words."""
KEPT = "experience kept:"
"""How the note begins that says under which name a run's experience stands."""


def session_event(event: Event) -> Event | None:
    """The event as a session tells it: without names that nobody can use there. None: not at
    all."""
    match event:
        case Noted() if event.text.startswith(KEPT):
            return None
        case Decided() if event.stop is not None:
            return event.evolve(stop=f"done: {STOPS.get(event.stop, event.stop)}")
    return event


def event_line(event: Event) -> str:
    """One line for a pipe, with nothing in it that moves a terminal; "" for what says nothing
    there."""
    return " ".join(plain(_words(event)).split())


def _words(event: Event) -> str:
    match event:
        case RunStarted():
            again = "again " if event.resumed else ""
            return f"run {event.run}: {event.problem} for {event.target} {again}({event.note})"
        case NodeStarted():
            return f"round {event.round}: {event.node} ..."
        case NodeFinished():
            return f"round {event.round}: {event.node} took {event.seconds:.1f} s"
        case Planned():
            first = event.plan.hypotheses[0].strategy if event.plan.hypotheses else "nothing"
            return f"plan: {first}, bound by {event.plan.analysis.roofline}"
        case CandidateDrafted(candidate=None):
            return f"no draft: {event.reason or 'nothing to offer'}"
        case CandidateDrafted():
            return f"drafted {_short(event.candidate)} by {event.coder}: {event.strategy}"
        case CandidateSetAside():
            return f"set aside {_short(event.candidate)}: {event.reason}"
        case VerdictReached():
            how = " (interpreted)" if event.interpreted else ""
            why = "accepted" if event.accepted else f"rejected at {event.gate}: {event.failure}"
            why = event.undecided or why
            return f"judged {_short(event.candidate)}: {why}{how}"
        case ProfileTaken():
            return f"timed {_short(event.candidate)}: {_speed(event)}"
        case ProfileMissed():
            return f"not timed {_short(event.candidate)}: {event.reason}"
        case Diagnosed():
            return f"diagnosis: {event.failure_class}: {event.advice}"
        case ModelAsked():
            tokens = show_count(event.prompt_tokens + event.completion_tokens)
            cost = show_usd(event.cost_usd)
            return f"{event.agent} asked {event.model}: {tokens} tokens, {cost}"
        case ModelWriting() | StagesTimed():
            return ""
        case ModelRetried():
            return f"{event.model} failed ({event.failure}), again in {event.wait_s:.0f} s"
        case ModelPassedOver() | Noted():
            return event.text
        case RemoteProgress():
            return f"{event.host}: {event.text}"
        case Decided():
            return f"round {event.round}: {event.stop or event.reason}, next: {event.next}"
        case Finished():
            return f"finished: {ENDS[event.result.status]}"
        case _:
            return str(event.kind).replace("_", " ")


def _speed(event: ProfileTaken) -> str:
    if not event.measured:
        return f"{show_us(event.estimated_time_us)} estimated"
    eager, compiled = show_ratio(event.speedup_vs_eager), show_ratio(event.speedup_vs_compile)
    return f"{show_us(event.time_us)} measured, {eager} eager, {compiled} torch.compile"


def _short(candidate: str | None) -> str:
    return (candidate or "-")[:10]
