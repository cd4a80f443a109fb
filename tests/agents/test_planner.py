from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.agents.planner import RulesPlanner
from agentkernel.agents.protocols import Attempt, Goals, PlanRequest
from agentkernel.domain.plan import Analysis, Hypothesis, Plan
from agentkernel.domain.profile import CompileReport, OpCost
from agentkernel.domain.verdict import Precision
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.roofline.model import analyse, estimate, estimate_eager, matmul_peak
from agentkernel.tools.targets import load_targets
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
    made = planner.plan(asked)
    assert names(made) == ["s1", "s3"]


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
