"""Does a model's plan hold to the form, to what was tried, and to the rules where it fails?"""

from __future__ import annotations

import json

import pytest

from agentkernel.agents.history import calibration
from agentkernel.agents.planner import ModelPlanner, RulesPlanner
from agentkernel.agents.protocols import Attempt, Goals, PlanRequest
from agentkernel.domain.errors import ModelUnavailable
from agentkernel.domain.plan import Algebra, Hypothesis, Plan, Work
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from tests.agents.models.model_cases import (
    EXAMPLE,
    H100,
    SAMPLING,
    ScriptedModel,
    analysis,
    note,
    refused,
    right,
)

ALGEBRA = Algebra(steps=(), before=Work(flops=2, bytes_moved=2), after=Work(flops=1, bytes_moved=1))
OFFERED = (
    Hypothesis(strategy="fused", reason="once", predicted_us=178.0),
    Hypothesis(strategy="algebra", reason="less work", predicted_us=190.0, algebra=ALGEBRA),
)


@pytest.fixture(scope="module")
def problem() -> LoadedProblem:
    return load_problem(str(EXAMPLE))


def ideas(*items: object) -> str:
    return json.dumps({"hypotheses": items})


def idea(strategy: str, us: float | None = None, speedup: float | None = None) -> dict[str, object]:
    return {
        "strategy": strategy,
        "reason": f"because of {strategy}",
        "predicted_us": us,
        "predicted_speedup": speedup,
    }


def ask(
    problem: LoadedProblem,
    answers: list[str | ModelUnavailable],
    history: tuple[Attempt, ...] = (),
    *,
    free: bool = True,
) -> tuple[Plan, ScriptedModel, list[str]]:
    model, told = ScriptedModel(answers), list[str]()
    rules = RulesPlanner(lambda *_: OFFERED)
    planner = ModelPlanner(model, rules, SAMPLING, free, told.append)
    made = planner.plan(PlanRequest(problem, analysis(), H100, Goals(), history, (note(),)))
    return made, model, told


def names(plan: Plan) -> list[str]:
    return [item.strategy for item in plan.hypotheses]


def test_the_models_order_and_predictions(problem: LoadedProblem) -> None:
    made, model, told = ask(problem, [ideas(idea("two passes", 210.0), idea("one row", 170.0))])
    assert names(made) == ["two passes", "one row"]
    first = made.hypotheses[0]
    assert (first.predicted_us, first.predicted_by) == (210.0, model.name)
    assert first.reason == "because of two passes"
    assert made.decisions
    assert model.questions[0].agent == "planner"
    assert told == []


def test_three_at_most_each_once(problem: LoadedProblem) -> None:
    named = [idea(name) for name in ("a", "a", "b", "  c ", "d")]
    assert names(ask(problem, [ideas(*named)])[0]) == ["a", "b", "c"]


def test_what_was_tried_is_not_tried_again(problem: LoadedProblem) -> None:
    history = (refused(strategy="tiled"),)
    made, model, _ = ask(problem, [ideas(idea("tiled"), idea("new"))], history)
    assert names(made) == ["new"]
    assert model.questions[0].round == 1
    assert "- tiled: refused at the gate" in model.heard


def test_only_old_ideas_leave_the_rules_plan(problem: LoadedProblem) -> None:
    made, _, told = ask(problem, [ideas(idea("tiled"))], (refused(strategy="tiled"),))
    assert names(made) == ["fused", "algebra"]
    assert "nothing new" in told[0]


@pytest.mark.parametrize(
    "answers", [["No.", "Still no."], [ModelUnavailable("no answer")], ["{}", ideas()]]
)
def test_without_an_answer_the_rules_plan(
    problem: LoadedProblem, answers: list[str | ModelUnavailable]
) -> None:
    made, _, told = ask(problem, answers)
    assert names(made) == ["fused", "algebra"]
    assert {item.predicted_by for item in made.hypotheses} == {""}
    assert len(told) == 1


def test_a_speedup_is_over_the_fastest_baseline_that_was_measured(problem: LoadedProblem) -> None:
    answer = ideas(idea("new", speedup=1.5))
    assert ask(problem, [answer])[0].hypotheses[0].predicted_us is None
    # 200 us, 1.5 times faster than torch.compile: that takes 300 us.
    assert ask(problem, [answer], (right(200.0),))[0].hypotheses[0].predicted_us == 200.0


def test_nothing_is_expected_below_the_roofline(problem: LoadedProblem) -> None:
    assert ask(problem, [ideas(idea("magic", 0.01))])[0].hypotheses[0].predicted_us == 160.0


def test_a_coder_of_templates_gets_offered_names_with_their_algebra(problem: LoadedProblem) -> None:
    answer = ideas(idea("magic"), idea("algebra", 170.0))
    made, model, _ = ask(problem, [answer], free=False)
    assert names(made) == ["algebra"]
    assert made.hypotheses[0].algebra == ALGEBRA
    assert made.hypotheses[0].predicted_us == 170.0
    assert "The coder knows these alone" in model.heard


def test_expectations_stand_beside_results(problem: LoadedProblem) -> None:
    _, model, _ = ask(problem, [ideas(idea("new"))], (right(200.0, strategy="old"),))
    assert "- old, 180.0 us expected: right, 200.0 us measured" in model.heard
    assert "Of 1 measured expectations of chat:openai:scripted, 0 held" in model.heard


def expected(predicted: float | None, measured: float, by: str = "m", source: str = "") -> Attempt:
    made = right(measured, source=source or f"# {predicted} {measured}")
    return made.evolve(predicted_us=predicted, predicted_by=by)


def test_calibration() -> None:
    held, missed = expected(100.0, 109.0), expected(100.0, 400.0)
    other, unknown = expected(50.0, 25.0, by=""), expected(None, 10.0)
    unmeasured = refused().evolve(predicted_us=1.0, predicted_by="m")
    rules, model = calibration((held, missed, other, unknown, unmeasured))
    assert (model.predicted_by, model.predictions, model.within) == ("m", 2, 1)
    assert model.ratio == pytest.approx((1.09 * 4.0) ** 0.5)
    assert (rules.predicted_by, rules.within, rules.ratio) == ("", 1, pytest.approx(0.5))
    assert calibration(()) == ()


def test_a_candidate_counts_once_with_what_is_known_last() -> None:
    judged = expected(100.0, 90.0, source="same").evolve(profile=None)
    (found,) = calibration((judged, expected(100.0, 90.0, source="same")))
    assert found.predictions == 1
