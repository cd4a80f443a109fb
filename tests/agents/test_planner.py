"""Planners propose at most three new things, the likeliest first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentkernel.agents.history import calibration
from agentkernel.agents.planner import ModelPlanner, RulesPlanner
from agentkernel.agents.protocols import Attempt, Goals, PlanRequest
from agentkernel.domain.errors import ModelUnavailable
from agentkernel.domain.plan import Algebra, Analysis, Hypothesis, Plan, Work
from agentkernel.domain.profile import CompileReport, OpCost
from agentkernel.domain.verdict import Precision
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.roofline.model import analyse, estimate, estimate_eager, matmul_peak
from agentkernel.tools.targets import load_targets
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
from tests.workflows.fakes import ANALYSIS, PROBLEM, attempt, small_problem


def offer(*times: float | None) -> tuple[Hypothesis, ...]:
    return tuple(
        Hypothesis(strategy=f"s{index}", reason="r", predicted_us=time)
        for index, time in enumerate(times)
    )


def plan(
    tmp_path: Path,
    offered: tuple[Hypothesis, ...],
    history: tuple[Attempt, ...] = (),
    analysis: Analysis = ANALYSIS,
) -> Plan:
    planner = RulesPlanner(lambda problem, target: offered)
    target = load_targets()["h100-sxm"]
    return planner.plan(PlanRequest(small_problem(tmp_path), analysis, target, Goals(), history))


def names(made: Plan) -> list[str]:
    return [item.strategy for item in made.hypotheses]


def test_at_most_three_the_fastest_predicted_first(tmp_path: Path) -> None:
    assert names(plan(tmp_path, offer(4.0, 1.0, 3.0, 2.0))) == ["s1", "s3", "s2"]


def test_equal_predictions_keep_the_coders_order(tmp_path: Path) -> None:
    assert names(plan(tmp_path, offer(None, None, None))) == ["s0", "s1", "s2"]


def test_what_was_tried_is_not_tried_again(tmp_path: Path) -> None:
    assert names(plan(tmp_path, offer(1.0, 2.0), (attempt(name="s0"),))) == ["s1"]
    assert names(plan(tmp_path, offer(1.0), (attempt(name="s0"),))) == []


def test_what_gave_nothing_takes_no_place_in_the_plan(tmp_path: Path) -> None:
    planner = RulesPlanner(lambda problem, target: offer(1.0, 2.0, 3.0, 4.0))
    problem, target = small_problem(tmp_path), load_targets()["h100-sxm"]
    asked = PlanRequest(problem, ANALYSIS, target, Goals(), exhausted=("s0", "s2"))
    assert names(planner.plan(asked)) == ["s1", "s3"]


@pytest.mark.parametrize("precision", ["strict", "tf32"])
@pytest.mark.parametrize("rows", [64, 8192])
def test_a_prediction_is_the_estimate_of_one_kernel(
    tmp_path: Path, rows: int, precision: Precision
) -> None:
    """Eager's and a candidate's estimates and the planner's prediction are one model of time."""
    path = tmp_path / "sized.py"
    path.write_text(PROBLEM.replace("torch.randn(4, 8)", f"torch.randn({rows}, 8192)"))
    captured, target = capture(load_problem(str(path))), load_targets()["h100-sxm"]
    analysis = analyse(captured, target, precision)
    eager = estimate_eager(captured, target, precision)
    made = plan(tmp_path, offer(None), analysis=analysis)
    assert made.hypotheses[0].predicted_us == pytest.approx(eager.time_us)


def test_a_product_is_predicted_as_a_librarys_is_estimated(tmp_path: Path) -> None:
    target, flops = load_targets()["h100-sxm"], 10**12
    peak = matmul_peak(target, "float32", "eager").tflops
    product = ANALYSIS.evolve(
        flops=flops,
        matmul_flops=flops,
        matmul_peak_tflops=peak,
        compute_time_us=flops / peak / 1e6,
    )
    cost = OpCost(op="aten.mm", dtype="float32", bytes_moved=256, flops=flops, kind="matmul")
    report = CompileReport(target="90", kernels=(), library_ops=("aten.mm",), library_costs=(cost,))
    made = plan(tmp_path, offer(None), analysis=product)
    expected = estimate(report, product, target).time_us
    assert made.hypotheses[0].predicted_us == pytest.approx(expected)


def test_decisions_name_what_the_patterns_call_for(tmp_path: Path) -> None:
    rows = ANALYSIS.evolve(patterns=("layer_norm",))
    products = ANALYSIS.evolve(patterns=("linear",), roofline="compute")
    of_rows, of_products = plan(tmp_path, (), analysis=rows), plan(tmp_path, (), analysis=products)
    assert of_rows.decision("row.num_warps") == "auto"
    assert of_rows.decision("gemm.fp32.tile") is None
    assert of_products.decision("gemm.fp32.tile") == "auto"
    assert of_products.decision("focus") == "tensor cores"
    assert {item.because for item in of_rows.decisions} == {"default"}


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


def test_what_was_tried_is_not_tried_again_by_a_model(problem: LoadedProblem) -> None:
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
    assert (made.hypotheses[0].algebra, made.hypotheses[0].predicted_us) == (ALGEBRA, 170.0)
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
