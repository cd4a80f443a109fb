from __future__ import annotations

import pytest

from agentkernel.agents.protocols import Diagnosis, Goals
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.plan import Hypothesis, Plan
from agentkernel.domain.profile import Ratio
from agentkernel.workflows import routing
from agentkernel.workflows.state import Limits, LoopState, append_attempts
from tests.workflows.fakes import ANALYSIS, attempt, measurement, mismatch

NEXT = Hypothesis(strategy="next", reason="because", predicted_us=1.0)
SLOW = Hypothesis(strategy="slow", reason="because", predicted_us=100.0)
UNSURE = Hypothesis(strategy="unsure", reason="nobody predicts it")
PLAN = Plan(analysis=ANALYSIS, hypotheses=(NEXT,))
EMPTY = Plan(analysis=ANALYSIS, hypotheses=())
NEAR = Plan(analysis=ANALYSIS.evolve(bound_us=2.45), hypotheses=(UNSURE,))
CANDIDATE = Candidate(source="a", coder="scripted", round=1)
GOOD, BAD = attempt(), attempt(failure=mismatch())
REPAIR = Diagnosis(failure_class="compile", evidence="", action="repair", advice="")
NEXT_ONE = REPAIR.evolve(action="next_hypothesis")
SLIGHTLY = Ratio(value=1.1, low=1.08, high=1.12)


def state(**fields: object) -> LoopState:
    return LoopState(plan=PLAN, round=1).evolve(**fields)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (state(queue=(NEXT,)), "draft"),
        (state(), "decide"),
        (state(queue=(NEXT,), round=3), "decide"),
        (state(queue=(NEXT,), limits=Limits(time_s=5.0), spent_s=5.0), "decide"),
    ],
)
def test_after_plan(given: LoopState, expected: str) -> None:
    assert routing.after_plan(given) == expected


def test_after_draft() -> None:
    assert routing.after_draft(state(candidate=CANDIDATE)) == "judge"
    assert routing.after_draft(state()) == "decide"


def test_approval_stands_before_draft_or_judge() -> None:
    plan, candidate = state(approve="plan"), state(approve="candidate", candidate=CANDIDATE)
    assert routing.after_plan(plan.evolve(queue=(NEXT,))) == "approve_plan"
    assert (routing.after_plan(plan), routing.after_approve_plan(plan)) == ("decide", "draft")
    assert routing.after_approve_plan(state(stop="declined")) == "finish"
    assert routing.after_draft(candidate) == "approve_candidate"
    assert routing.after_decide(candidate) == "approve_candidate"
    assert routing.after_draft(state(approve="candidate")) == "decide"
    assert routing.after_approve_candidate(candidate) == "judge"
    assert routing.after_approve_candidate(state()) == "decide"


def test_after_judge() -> None:
    good, bad = (state(verdict=item.verdict, candidate=item.candidate) for item in (GOOD, BAD))
    assert routing.after_judge(good) == "profile"
    assert routing.after_judge(bad) == "debug"
    assert routing.after_judge(state(candidate=GOOD.candidate)) == "decide"
    assert routing.after_judge(state(verdict=GOOD.verdict)) == "decide", "it is profiled later"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (state(diagnosis=REPAIR), "draft"),
        (state(diagnosis=REPAIR, repairs=1), "draft"),
        (state(diagnosis=REPAIR, repairs=2), "decide"),
        (state(diagnosis=REPAIR, round=3), "draft"),
        (state(diagnosis=REPAIR, limits=Limits(time_s=5.0), spent_s=6.0), "decide"),
        (state(diagnosis=NEXT_ONE), "decide"),
        (state(), "decide"),
    ],
)
def test_after_debug(given: LoopState, expected: str) -> None:
    assert routing.after_debug(given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (state(stop="met", queue=(NEXT,)), "finish"),
        (state(queue=(NEXT,)), "draft"),
        (state(), "plan"),
    ],
)
def test_after_decide(given: LoopState, expected: str) -> None:
    assert routing.after_decide(given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(state(queue=(NEXT,)), None, id="more to try"),
        pytest.param(state(), None, id="one replan is left"),
        pytest.param(state(replans=1), "hypotheses", id="replanned already"),
        pytest.param(state(plan=EMPTY), "hypotheses", id="nothing was ever offered"),
        pytest.param(state(queue=(NEXT,), round=3), "rounds", id="rounds"),
        pytest.param(
            state(queue=(NEXT,), limits=Limits(time_s=1.0), spent_s=1.0), "time", id="time"
        ),
        pytest.param(
            state(queue=(NEXT,), history=(attempt(measurement()),)), "met", id="goal reached"
        ),
        pytest.param(state(queue=(NEXT,), history=(attempt(measurement(SLIGHTLY, SLIGHTLY)),)),
            None, id="goal not reached"),
        pytest.param(
            state(
                queue=(NEXT,), history=(attempt(measurement(SLIGHTLY, SLIGHTLY, roofline=0.98)),)
            ),
            "headroom",
            id="no headroom",
        ),
        pytest.param(
            state(
                queue=(NEXT,), history=(attempt(measurement(SLIGHTLY, SLIGHTLY, roofline=0.96)),)
            ),
            None,
            id="four per cent of headroom",
        ),
        pytest.param(
            state(queue=(NEXT,), history=(GOOD,)), None, id="estimated, a faster one predicted"
        ),
        pytest.param(
            state(queue=(SLOW,), history=(GOOD,)), "estimate", id="estimated, none predicted faster"
        ),
        pytest.param(
            state(queue=(UNSURE,), history=(GOOD,)), None, id="estimated, nothing predicted"
        ),
        pytest.param(state(plan=NEAR, queue=(UNSURE,), history=(GOOD,)), "estimate",
            id="estimated, close to the roofline"),
        pytest.param(
            state(queue=(SLOW,), history=(attempt(fits=False),)), None, id="best does not fit"
        ),
        pytest.param(state(queue=(NEXT,), history=(BAD,)), None, id="wrong so far"),
    ],
)  # fmt: skip
def test_stop_reason(given: LoopState, expected: str | None) -> None:
    assert routing.stop_reason(given) == expected


def test_goals_are_heeded() -> None:
    reached = state(queue=(NEXT,), history=(attempt(measurement()),))
    higher = reached.evolve(goals=Goals(speedup=1.5))
    assert (routing.stop_reason(reached), routing.stop_reason(higher)) == ("met", None)


def test_history_keeps_one_entry_a_candidate_and_the_latest() -> None:
    first, other = attempt(name="a", profiled=False), attempt(name="b")
    again = attempt(name="a")
    joined = append_attempts((first, other), (again,))
    assert [item.candidate.source for item in joined] == ["a", "b"]
    assert joined[0].profile is not None
    assert append_attempts(joined, (again,)) == joined
    assert append_attempts(joined, None) == joined


TEAM = Limits(replans=3)


@pytest.mark.parametrize(
    ("given", "stop", "outdone"),
    [
        pytest.param(state(queue=(SLOW,), history=(GOOD,), limits=TEAM), None, True, id="a turn"),
        pytest.param(state(history=(GOOD,), limits=TEAM), None, True, id="more turns"),
        pytest.param(
            state(queue=(NEXT,), history=(GOOD,), limits=TEAM), None, False, id="the queue promises"
        ),
        pytest.param(
            state(history=(GOOD,), limits=TEAM, replans=3), "estimate", False, id="no turn left"
        ),
        pytest.param(state(history=(GOOD,), limits=Limits(replans=3, headroom=0.2)), "estimate",
            False, id="at the roofline"),
        pytest.param(
            state(queue=(SLOW,), history=(attempt(measurement(SLIGHTLY, SLIGHTLY)),), limits=TEAM),
            None, False, id="measured"),
    ],
)  # fmt: skip
def test_turns_after_an_estimate(given: LoopState, stop: str | None, outdone: bool) -> None:
    assert (routing.stop_reason(given), routing.queue_without_gain(given)) == (stop, outdone)


def test_a_time_limit_that_left_nothing_is_the_reason() -> None:
    limit = Limits(time_s=40.0)
    over = state(limits=limit, spent_s=46.0)
    assert routing.why_nothing(over) == (
        "the time limit of 40 s was over before a candidate was drafted"
    )
    left = attempt(judged=False)
    unjudged = state(limits=limit, spent_s=46.0, history=(left,))
    assert routing.why_nothing(unjudged) == (
        f"{left.candidate.id} was drafted; the time limit of 40 s was over before it was judged"
    )
    assert routing.why_nothing(state(limits=limit, spent_s=46.0, history=(BAD,))) == ""
    assert routing.why_nothing(over.evolve(nothing="no pattern")) == "no pattern"
    assert routing.why_nothing(state(limits=limit, spent_s=1.0)) == ""
