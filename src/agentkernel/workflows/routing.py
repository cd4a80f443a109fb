"""Routers: pure functions of the state that choose the next node or skip a candidate.

A judgement and a profile cost more than all that went before. The search has timed a candidate
already, less carefully but by the same clock as its rivals, so a slow one can be skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from agentkernel.agents.history import experience_holds, winner_for
from agentkernel.agents.protocols import Attempt
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.formatting import span
from agentkernel.domain.settings import MODEL_PREFIXES
from agentkernel.workflows.outcome import (
    LIMIT,
    OUT_OF_TIME,
    accepted,
    best_attempt,
    broke_profiling,
    goals_met,
    of_this_run,
)
from agentkernel.workflows.state import DECLINED, LoopState, StopReason

DecidedNext = Literal["approve_candidate", "judge", "draft", "plan", "finish"]


def after_plan(state: LoopState) -> Literal["approve_plan", "draft", "decide"]:
    """Draft where the plan has something to try, once it is approved."""
    if not state.queue or out_of_budget(state) is not None:
        return "decide"
    return "approve_plan" if state.approve == "plan" else "draft"


def after_approve_plan(state: LoopState) -> Literal["draft", "finish"]:
    """A plan that is declined ends the run."""
    return "draft" if state.stop is None else "finish"


def after_draft(state: LoopState) -> Literal["approve_candidate", "judge", "decide"]:
    """Judge what was drafted, once it is approved."""
    return "decide" if state.candidate is None else before_judge(state)


def before_judge(state: LoopState) -> Literal["approve_candidate", "judge"]:
    """Where a candidate goes that is to be judged."""
    return "approve_candidate" if state.approve == "candidate" else "judge"


def after_approve_candidate(state: LoopState) -> Literal["judge", "decide"]:
    """A candidate that is declined costs its hypothesis."""
    return "judge" if state.candidate is not None else "decide"


def after_judge(state: LoopState) -> Literal["profile", "debug", "decide"]:
    """Measure what is right, debug what is wrong; without a verdict the time is over, without a
    candidate it is measured later."""
    if state.verdict is None or state.candidate is None:
        return "decide"
    return "profile" if state.verdict.accepted else "debug"


def after_debug(state: LoopState) -> Literal["draft", "decide"]:
    """Repair where the debugger says so and the budget allows it."""
    if state.diagnosis is None or state.diagnosis.action != "repair":
        return "decide"
    if state.repairs >= state.limits.repairs or out_of_budget(state) in ("time", "tokens", "money"):
        return "decide"
    return "draft"


def after_decide(state: LoopState) -> DecidedNext:
    """What was set aside, the next hypothesis, a new plan, or the end."""
    if state.stop is not None:
        return "finish"
    if state.candidate is not None:
        return before_judge(state)
    return "draft" if state.queue else "plan"


def stop_reason(state: LoopState) -> StopReason | None:
    """Why the loop ends here, None where it goes on."""
    best = best_attempt(state.history, state.goals)
    if best is not None and goals_met(best, state.goals):
        return "met"
    if best is not None and no_headroom(best, state.limits.headroom):
        return "headroom"
    spent = out_of_budget(state)
    if spent is not None:
        return spent
    if best is not None and no_estimated_gain(best, state) and not turns_left(best, state):
        return "estimate"
    used_up = state.replans >= state.limits.replans or nothing_to_replan(state)
    exhausted = not state.queue and used_up
    return "hypotheses" if exhausted else None


def out_of_budget(state: LoopState) -> StopReason | None:
    """The budget that is used up, if any."""
    limits = state.limits
    if time_is_up(state):
        return "time"
    if limits.tokens is not None and state.tokens >= limits.tokens:
        return "tokens"
    if limits.usd is not None and state.usd >= limits.usd:
        return "money"
    if stagnant(state):
        return "stagnation"
    return "rounds" if state.round >= limits.rounds + state.retraced else None


def stagnant(state: LoopState) -> bool:
    """True where the latest drafts, as many as the patience, are models' and none is the best. A
    hypothesis counts once: its repairs belong to it."""
    patience = state.limits.patience
    best = best_attempt(state.history, state.goals)
    if patience is None or best is None:
        return False
    rounds = sorted({item.candidate.round for item in state.history})[-patience:]
    latest = [item.candidate for item in state.history if item.candidate.round in rounds]
    by_models = all(item.coder.startswith(MODEL_PREFIXES) for item in latest)
    return len(rounds) == patience and by_models and best.candidate not in latest


def time_is_up(state: LoopState) -> bool:
    """True where the wall seconds of all sessions together reach the limit."""
    return state.limits.time_s is not None and state.spent_s >= state.limits.time_s


def why_nothing(state: LoopState) -> str:
    """Why there is no candidate: the coder's reason, or a time limit that was over before one was
    drafted or judged."""
    own = of_this_run(state.history)
    if state.nothing or not time_is_up(state) or any(item.verdict for item in own):
        return state.nothing
    limit = f"{LIMIT}{span(state.limits.time_s)} was over before"
    if not own:
        return f"{limit} a candidate was drafted"
    return f"{own[-1].candidate.id} was drafted; {limit} it was judged"


def no_headroom(attempt: Attempt, headroom: float) -> bool:
    """True where every shape set is measured within `headroom` of its roofline."""
    measurements = attempt.profile.measurements if attempt.profile else ()
    return bool(measurements) and all(
        item.roofline_fraction > 1.0 - headroom for item in measurements
    )


def no_estimated_gain(best: Attempt, state: LoopState) -> bool:
    """True where nothing can be measured, and no hypothesis left is predicted to beat `best`; one
    of which nobody predicts a time may reach the roofline.

    `best` then compiles for the target without spilling; all times here are estimates.
    """
    profile = best.profile
    if profile is None or profile.measured or profile.report is None:
        return False
    if not profile.report.fits or profile.report.spills:
        return False
    bar = profile.estimate.time_us * (1.0 - state.limits.headroom)
    least = state.plan.analysis.bound_us if state.plan else 0.0
    return all((item.predicted_us or least) >= bar for item in state.queue)


def turns_left(best: Attempt, state: LoopState) -> bool:
    """True where others have a turn after what is in the queue, and the roofline leaves them room
    below the estimate of `best`."""
    in_turns = state.limits.replans > 1 and state.replans < state.limits.replans
    if not in_turns or best.profile is None or state.plan is None:
        return in_turns
    bar = best.profile.estimate.time_us * (1.0 - state.limits.headroom)
    return state.plan.analysis.bound_us < bar


def queue_without_gain(state: LoopState) -> bool:
    """True where what is in the queue promises nothing, but others have a turn after it."""
    best = best_attempt(state.history, state.goals)
    return best is not None and no_estimated_gain(best, state) and turns_left(best, state)


def warm_start_failed(state: LoopState) -> bool:
    """True where what was just tried began from an experience, and does not hold what that
    promised: the plan without it is followed then."""
    hypothesis, plan = state.hypothesis, state.plan
    if hypothesis is None or not hypothesis.because or plan is None or not plan.fallback:
        return False
    if time_is_up(state):
        return False
    won = winner_for(hypothesis, state.retrieved)
    begun = [item for item in state.history if item.candidate.origin == hypothesis.because]
    return won is None or not experience_holds(begun, won)


def nothing_to_replan(state: LoopState) -> bool:
    """True where a new plan could not differ: the last one had no hypothesis at all."""
    return state.plan is not None and not state.plan.hypotheses


RIVAL = 0.99
"""A candidate must take less than this share of an accepted one's time, in the search: what is as
fast as that changes nothing."""
BASELINE = 1.25
"""A candidate this many times slower than a baseline is handed over to nobody. The search and the
quick look at the baselines are two clocks, hence the room."""


def should_skip(
    candidate: Candidate, history: Sequence[Attempt], baseline_us: float | None
) -> str | None:
    """Why `candidate` need not be judged now; None where it should be."""
    own = candidate.searched_us
    if own is None:
        return None
    rivals = [item for item in history if item.candidate.searched_us and _stands(item)]
    best = min(rivals, key=lambda item: item.candidate.searched_us or 0.0, default=None)
    if best is not None and own >= RIVAL * (best.candidate.searched_us or own):
        times = own / (best.candidate.searched_us or own)
        return f"in the search {times:.2f}x the time of the accepted {best.candidate.id}"
    if baseline_us is not None and own > BASELINE * baseline_us:
        return f"in the search {own / baseline_us:.2f}x slower than the faster baseline"
    return None


def retry_skipped(history: Sequence[Attempt]) -> Candidate | None:
    """Of those set aside the fastest, where no candidate was accepted: a run should end knowing
    whether what it wrote is right."""
    if any(_stands(item) for item in history):
        return None
    waiting = [
        item.candidate
        for item in history
        if item.aside not in ("", DECLINED, OUT_OF_TIME) and item.verdict is None
    ]
    return min(waiting, key=lambda item: item.searched_us or 0.0, default=None)


LEAST_LEFT_S = 60.0
"""With less time left a candidate is profiled before anything else is drafted."""


def may_wait(state: LoopState, candidate: Candidate) -> bool:
    """True where the next hypothesis can be drafted before an accepted candidate is profiled: the
    search has timed it, so that the next one is compared with it all the same."""
    if candidate.searched_us is None or state.goals.objective != "latency":
        return False
    if not state.queue or state.approve != "never" or out_of_budget(state) is not None:
        return False
    begun = state.hypothesis is not None and bool(state.hypothesis.because)
    limit_s = state.limits.time_s
    return not begun and (limit_s is None or limit_s - state.spent_s >= LEAST_LEFT_S)


def profile_waiting(history: Sequence[Attempt]) -> Candidate | None:
    """Of the accepted ones whose profile waits the fastest in the search; None where one that was
    profiled is as fast there."""
    stand = [item for item in of_this_run(history) if _stands(item) and item.candidate.searched_us]
    waiting = [item for item in stand if item.profile is None and item.unprofiled is None]
    best = min(waiting, key=lambda item: item.candidate.searched_us or 0.0, default=None)
    done = [item for item in stand if item.profile is not None]
    if best is None or should_skip(best.candidate, done, None) is not None:
        return None
    return best.candidate


def _stands(attempt: Attempt) -> bool:
    """True where it may be handed over: accepted, and not broken while it was profiled."""
    return accepted(attempt) and not broke_profiling(attempt)
