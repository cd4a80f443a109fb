"""Nodes of the graph, one function for each role.

`interrupt` ends a step with a pending approval in the checkpoint: a run that is killed while it
waits asks again. What precedes it in a node runs once more after the answer, so nothing does.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

from langgraph.runtime import Runtime
from langgraph.types import interrupt

from agentkernel.agents.models.protocol import LEAST_S
from agentkernel.agents.planner import predict
from agentkernel.agents.protocols import Attempt, Diagnosis, DraftRequest, PlanRequest
from agentkernel.domain.candidate import Candidate, Draft, NoTemplate
from agentkernel.domain.errors import ModelUnavailable, NotRecorded, TimeIsUp, one_line
from agentkernel.domain.plan import Hypothesis, Plan
from agentkernel.domain.profile import Profile, ProfileFailed
from agentkernel.domain.verdict import Verdict
from agentkernel.runtime.stages import stage
from agentkernel.tools.sandbox.session import limited_time
from agentkernel.workflows import events
from agentkernel.workflows.approval import PendingApproval
from agentkernel.workflows.deps import Context
from agentkernel.workflows.experience import keep_experience
from agentkernel.workflows.models import left_s
from agentkernel.workflows.outcome import EARLIER, OUT_OF_TIME, best_attempt, decide_outcome
from agentkernel.workflows.results import conclude
from agentkernel.workflows.routing import (
    after_decide,
    may_wait,
    profile_waiting,
    queue_without_gain,
    retry_skipped,
    should_skip,
    stop_reason,
    warm_start_failed,
    why_nothing,
)
from agentkernel.workflows.state import DECLINED, LoopState, Update


def approve_plan(state: LoopState, runtime: Runtime[Context]) -> Update:
    """Go on with the plan, or end the run with what it has."""
    first = state.queue[0]
    if interrupt(
        PendingApproval(kind="plan", round=state.round, hypothesis=first, plan=state.plan)
    ):
        return Update(stop=None)
    runtime.context.emit(events.Noted(text="the plan was declined"))
    return Update(stop=DECLINED, queue=(), nothing="the plan was declined")


def approve_candidate(state: LoopState, runtime: Runtime[Context]) -> Update:
    """Judge the candidate, or leave it out for good."""
    candidate, hypothesis = state.candidate, state.hypothesis
    if candidate is None or hypothesis is None:
        raise ValueError("there is no candidate to approve")
    asked = PendingApproval(
        kind="candidate", round=state.round, hypothesis=hypothesis, candidate=candidate
    )
    if interrupt(asked):
        return Update(stop=None)
    left = _set_aside(runtime.context, state.round, candidate, hypothesis, DECLINED)
    return Update(candidate=None, history=(left,), nothing="what was drafted was declined")


class Node(Protocol):
    """A role's turn."""

    def __call__(self, state: LoopState, runtime: Runtime[Context]) -> Update: ...


def observed(name: events.NodeName, node: Node) -> Node:
    """`node` with its beginning and end reported, and the run's clock brought up to date."""

    def run_node(state: LoopState, runtime: Runtime[Context]) -> Update:
        context = runtime.context
        begin = context.session.spent()
        context.emit(events.NodeStarted(node=name, round=state.round, spent_s=begin))
        try:
            with stage(name), limited_time(lambda: _left_s(context, name, state)):
                update = node(state, runtime)
        except TimeIsUp:
            update = Update()
        end = context.session.spent()
        context.store.records.spend(context.session.seconds())
        context.emit(
            events.NodeFinished(
                node=name,
                round=update.get("round", state.round),
                seconds=end - begin,
                spent_s=end,
            )
        )
        update["spent_s"] = end
        taken = context.models()
        update["tokens"], update["usd"] = taken.prompt + taken.completion, taken.cost_usd or 0.0
        return update

    run_node.__name__ = name
    return run_node


MORE_TO_MEASURE = 0.15
"""Of the time limit, what a run takes beyond it to measure an accepted candidate where none is
measured yet: all that was spent on it would come to no answer."""


def _left_s(context: Context, name: events.NodeName, state: LoopState) -> float:
    """Seconds that the time limit leaves to a node; what only concludes is never cut off."""
    limit_s = context.store.manifest.settings.budget.time_s
    if limit_s is None or name in ("decide", "finish"):
        return left_s(None, context.session.spent())
    if name == "profile" and not any(item.profile for item in state.history):
        limit_s *= 1 + MORE_TO_MEASURE
    return left_s(limit_s, context.session.spent())


def retrieve(state: LoopState, runtime: Runtime[Context]) -> Update:
    """Find what is known that bears on the problem."""
    context = runtime.context
    analysis = context.tools.analyse()
    found = context.crew.retriever.retrieve(context.problem, analysis, context.target)
    context.store.records.save_retrieved(found)
    return Update(retrieved=found)


def plan(state: LoopState, runtime: Runtime[Context]) -> Update:
    """Turn roofline facts, history and what was found into hypotheses, and let hints change the
    decisions; a replan without hypotheses keeps the plan."""
    context = runtime.context
    made = context.crew.planner.plan(
        PlanRequest(
            problem=context.problem,
            analysis=context.tools.analyse(),
            target=context.target,
            goals=state.goals,
            history=state.history,
            retrieved=state.retrieved,
            exhausted=state.barren,
        )
    )
    fresh = tuple(item for item in made.hypotheses if item.strategy not in state.barren)
    if state.focus is not None:
        fresh = _focused(made, state.focus) if state.plan is None else ()
        made = made.evolve(fallback=())
    made = made.evolve(hypotheses=fresh)
    made = context.tools.apply_hints(made, state.retrieved)
    again = state.replans + (state.plan is not None)
    replans = again if fresh else max(again, state.limits.replans)
    kept = state.plan if state.plan is not None and not fresh else made
    context.emit(events.Planned(round=state.round, plan=kept))
    update = Update(plan=kept, queue=fresh, replans=replans)
    if not kept.hypotheses:
        missing = ", ".join(kept.analysis.uncovered) or "this module"
        update["nothing"] = f"the {context.crew.coder.name} coder has no template for {missing}"
        if state.history:
            update["nothing"] = "every idea was tried in earlier runs"
    return update


def _focused(made: Plan, strategy: str) -> tuple[Hypothesis, ...]:
    """The one hypothesis that was asked for, as the planner words it where it thought of it."""
    asked = Hypothesis(strategy=strategy, reason="asked for")
    found = (item for item in made.hypotheses if item.strategy == strategy)
    return (next(found, predict(asked, made.analysis)),)


def draft(state: LoopState, runtime: Runtime[Context]) -> Update:
    """Ask the coder for a candidate: a repair of the last one, or the next hypothesis."""
    context = runtime.context
    repair = state.diagnosis is not None and state.hypothesis is not None
    hypothesis = state.hypothesis if repair else state.queue[0]
    request = DraftRequest(
        target=context.target,
        goals=state.goals,
        plan=_planned(state),
        hypothesis=hypothesis or state.queue[0],
        retrieved=state.retrieved,
        history=state.history,
        diagnosis=state.diagnosis,
        round=state.round if repair else state.round + 1,
        shown=state.shown,
    )
    made = _without_repeats(_drafted(context, request), state)
    candidate = _with_lineage(made, state)
    if candidate is not None:
        context.store.write_candidate(candidate)
    reason = made.none.reason if made.none is not None else ""
    context.emit(
        events.CandidateDrafted(
            round=request.round,
            candidate=candidate.id if candidate else None,
            coder=candidate.coder if candidate else context.crew.coder.name,
            strategy=request.hypothesis.strategy,
            parent=candidate.parent[:10] if candidate and candidate.parent else None,
            reason=reason or None,
            searched=len(made.tried),
            origin=candidate.origin or None if candidate else None,
        )
    )
    aside = _skip_reason(context, candidate, state)
    left: tuple[Attempt, ...] = ()
    if candidate is not None and aside is not None:
        left = (_set_aside(context, request.round, candidate, request.hypothesis, aside),)
    return Update(
        candidate=candidate if aside is None else None,
        history=left,
        nothing=reason,
        barren=_exhausted_strategies(state, made, request.hypothesis),
        shown=state.shown if made.shown is None else (*state.shown, made.shown),
        hypothesis=request.hypothesis,
        queue=state.queue if repair else state.queue[1:],
        round=request.round,
        repairs=state.repairs + 1 if repair else 0,
        verdict=None,
        profile=None,
    )


def _exhausted_strategies(state: LoopState, made: Draft, hypothesis: Hypothesis) -> tuple[str, ...]:
    """With a strategy for which there was nothing; a start from experience leaves it untried."""
    nothing = made.none is not None and not hypothesis.because
    return (*state.barren, hypothesis.strategy) if nothing else state.barren


def _skip_reason(context: Context, candidate: Candidate | None, state: LoopState) -> str | None:
    """Why the candidate is not judged; only latency lets the search tell."""
    if candidate is None or candidate.searched_us is None or state.goals.objective != "latency":
        return None
    try:
        return should_skip(candidate, state.history, context.tools.quick_baseline_us())
    except TimeIsUp:
        return OUT_OF_TIME


def _drafted(context: Context, request: DraftRequest) -> Draft:
    """The coder's answer, from the run's database where the same request was answered before."""
    records = context.store.records
    key = context.tools.draft_key(request)
    stored = records.draft(key)
    if stored is not None:
        return stored
    records.started("draft", key)
    try:
        made = context.crew.coder.draft(context.problem, request)
    except NotRecorded:
        raise
    except TimeIsUp as error:
        reason = f"{request.hypothesis.strategy} was not drafted: {one_line(error)}"
        return Draft(candidate=None, none=NoTemplate(reason=reason))
    except ModelUnavailable as error:
        limit_s = context.store.manifest.settings.budget.time_s
        if limit_s is None or context.session.spent() + LEAST_S < limit_s:
            raise
        return Draft(candidate=None, none=NoTemplate(reason=f"the time was up: {error}"))
    records.save_draft(key, made)
    return made


def _without_repeats(made: Draft, state: LoopState) -> Draft:
    """Nothing, where the text is one that an earlier run tried: what became of it is known."""
    earlier = {item.candidate.sha256 for item in state.history if item.candidate.round == EARLIER}
    if made.candidate is None or made.candidate.sha256 not in earlier:
        return made
    reason = f"{made.candidate.id} was drafted again, which an earlier run tried"
    none = NoTemplate(reason=reason)
    return Draft(candidate=None, none=none, tried=made.tried, shown=made.shown)


def _with_lineage(made: Draft, state: LoopState) -> Candidate | None:
    """What was drafted, with the refused candidate as the parent where the coder does not say what
    it was shown."""
    candidate, refused = made.candidate, state.candidate
    if candidate is None or candidate.parent is not None or made.shown is not None:
        return candidate
    if state.diagnosis is None or refused is None:
        return candidate
    return candidate.evolve(parent=refused.sha256)


def judge(state: LoopState, runtime: Runtime[Context]) -> Update:
    """Ask the judge, once a candidate: a finished judgement is looked up, never repeated."""
    context = runtime.context
    candidate = _drafted_candidate(state)
    records = context.store.records
    key = context.tools.judge_key(candidate)
    verdict = records.verdict(key)
    reused = verdict is not None
    if verdict is None:
        records.started("judge", key)
        try:
            verdict = context.tools.judge(candidate)
        except TimeIsUp:
            left = _set_aside(context, state.round, candidate, state.hypothesis, OUT_OF_TIME)
            return Update(verdict=None, history=(left,))
        records.save_verdict(key, verdict)
    context.emit(_verdict_event(state.round, candidate, verdict, reused))
    attempt = _attempt(candidate, state.hypothesis).evolve(verdict=verdict, judge_key=key)
    if verdict.accepted and _profiled_later(context, state, candidate):
        text = f"{candidate.id} is profiled later: its baselines are still being compiled"
        context.emit(events.Noted(text=text))
        return Update(verdict=verdict, candidate=None, history=(attempt,))
    return Update(verdict=verdict, history=(attempt,))


def _profiled_later(context: Context, state: LoopState, candidate: Candidate) -> bool:
    """True where the profile would wait and something else can be done meanwhile."""
    now = state.evolve(spent_s=context.session.spent())
    return may_wait(now, candidate) and not context.tools.baselines_ready()


def profile(state: LoopState, runtime: Runtime[Context]) -> Update:
    """Measure (or estimate) an accepted candidate, once."""
    context = runtime.context
    candidate = _drafted_candidate(state)
    records = context.store.records
    key, judge_key = context.tools.profile_key(candidate), context.tools.judge_key(candidate)
    judged = _attempt(candidate, state.hypothesis).evolve(
        verdict=state.verdict, judge_key=judge_key, profile_key=key
    )
    found = records.profile(key)
    reused = found is not None
    if found is None:
        records.started("profile", key)
        try:
            made = context.tools.profile(candidate)
        except TimeIsUp as error:
            made = ProfileFailed(side="time limit", reason=one_line(error))
        if isinstance(made, ProfileFailed):
            context.emit(_unprofiled_event(state.round, candidate, made))
            return Update(profile=None, history=(judged.evolve(unprofiled=made),))
        found = made
        records.save_profile(key, found)
    context.emit(_profile_event(state.round, candidate, found, reused))
    return Update(profile=found, history=(judged.evolve(profile=found),))


def debug(state: LoopState, runtime: Runtime[Context]) -> Update:
    """Let the debugger read the verdict."""
    context = runtime.context
    candidate = _drafted_candidate(state)
    if state.verdict is None:
        raise ValueError("debug needs a verdict")
    diagnosis = context.crew.debugger.diagnose(candidate, state.verdict, state.history)
    context.emit(
        events.Diagnosed(
            round=state.round,
            candidate=candidate.id,
            failure_class=diagnosis.failure_class,
            action=diagnosis.action,
            advice=diagnosis.advice,
            by=diagnosis.by,
        )
    )
    return Update(diagnosis=diagnosis)


def decide(state: LoopState, runtime: Runtime[Context]) -> Update:
    """Stop, take the next hypothesis, or plan again."""
    context = runtime.context
    state = state.evolve(spent_s=context.session.spent())
    queue = () if gave_up(state.diagnosis) or queue_without_gain(state) else state.queue
    retraced = warm_start_failed(state)
    if retraced and state.plan is not None and state.hypothesis is not None:
        text = f"{state.hypothesis.because} does not hold here: everything is searched"
        context.emit(events.Noted(text=text))
        queue = state.plan.fallback
        full = state.plan.evolve(hypotheses=queue, fallback=())
        state = state.evolve(plan=full, retraced=state.retraced + 1)
    state = state.evolve(queue=queue)
    stop = stop_reason(state)
    again = retry_skipped(state.history) if stop in ("hypotheses", "rounds") else None
    waiting = profile_waiting(state.history) if stop not in ("met", "headroom") else None
    if waiting is not None and (stop is not None or context.tools.baselines_ready()):
        again = waiting
    if again is not None:
        stop = None
    state = state.evolve(stop=stop, candidate=again)
    outcome = decide_outcome(state.history, state.goals, nothing=why_nothing(state))
    best = best_attempt(state.history, state.goals)
    context.emit(
        events.Decided(
            round=state.round,
            next=after_decide(state),
            stop=stop,
            best=best.candidate.id if best else None,
            status=outcome.status,
            reason=outcome.reason,
        )
    )
    update = Update(stop=stop, queue=queue, diagnosis=None, candidate=again)
    if retraced:
        update |= Update(plan=state.plan, retraced=state.retraced)
    if again is not None:
        why = "its profile waited" if waiting else "no other candidate was accepted"
        update["hypothesis"] = Hypothesis(strategy=again.strategy, reason=why)
        update["repairs"] = state.limits.repairs
    return update


def finish(state: LoopState, runtime: Runtime[Context]) -> Update:
    """Write the drop-in, the certificate and the report, and keep what was learned."""
    result = conclude(runtime.context, state)
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    keep_experience(runtime.context, state, result, ended)
    return Update(result=result)


def gave_up(diagnosis: Diagnosis | None) -> bool:
    """True where the debugger sees no sense in the hypotheses that are left."""
    return diagnosis is not None and diagnosis.action == "give_up"


def _planned(state: LoopState) -> Plan:
    if state.plan is None:
        raise ValueError("the loop begins with plan")
    return state.plan


def _attempt(candidate: Candidate, hypothesis: Hypothesis | None) -> Attempt:
    """A candidate with what was expected of it."""
    return Attempt(
        candidate=candidate,
        predicted_us=hypothesis.predicted_us if hypothesis else None,
        predicted_by=hypothesis.predicted_by if hypothesis else "",
    )


def _set_aside(
    context: Context, number: int, candidate: Candidate, hypothesis: Hypothesis | None, why: str
) -> Attempt:
    """The attempt of a candidate of round `number` that is not judged, which the run hears of."""
    context.emit(events.CandidateSetAside(round=number, candidate=candidate.id, reason=why))
    return _attempt(candidate, hypothesis).evolve(aside=why)


def _drafted_candidate(state: LoopState) -> Candidate:
    if state.candidate is None:
        raise ValueError("there is no candidate to work on")
    return state.candidate


def _verdict_event(
    round_number: int, candidate: Candidate, verdict: Verdict, reused: bool
) -> events.VerdictReached:
    return events.VerdictReached(
        round=round_number,
        candidate=candidate.id,
        accepted=verdict.accepted,
        interpreted=verdict.interpreted,
        gate=verdict.gate,
        failure=verdict.failure.kind if verdict.failure else None,
        undecided=verdict.undecided,
        error_vs_oracle=verdict.worst_error,
        eager_error_vs_oracle=verdict.worst_eager_error,
        seconds=verdict.seconds,
        reused=reused,
    )


def _unprofiled_event(
    round_number: int, candidate: Candidate, failed: ProfileFailed
) -> events.ProfileMissed:
    return events.ProfileMissed(
        round=round_number,
        candidate=candidate.id,
        side=failed.side,
        reason=failed.reason,
        log=failed.log,
    )


def _profile_event(
    round_number: int, candidate: Candidate, found: Profile, reused: bool
) -> events.ProfileTaken:
    primary = found.measurements[0] if found.measurements else None
    compiled = primary.vs_compile if primary else None
    autotuned = primary.vs_autotune if primary else None
    baseline = found.baseline_estimate
    return events.ProfileTaken(
        round=round_number,
        candidate=candidate.id,
        measured=found.measured,
        measured_on=found.measured_on,
        time_us=primary.candidate.median_us if primary else None,
        speedup_vs_eager=primary.vs_eager.value if primary else None,
        speedup_vs_compile=compiled.value if compiled else None,
        speedup_vs_autotune=autotuned.value if autotuned else None,
        roofline_fraction=primary.roofline_fraction if primary else None,
        estimated_time_us=found.estimate.time_us,
        estimated_eager_us=baseline.time_us if baseline else None,
        kernels=found.report.kernels if found.report else (),
        reused=reused,
    )
