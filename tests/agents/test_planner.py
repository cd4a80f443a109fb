from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.agents.planner import RulesPlanner
from agentkernel.agents.protocols import Attempt, Goals
from agentkernel.domain.plan import Analysis, Hypothesis, Plan
from agentkernel.tools.targets import load_targets
from fakes import ANALYSIS, attempt, small_problem


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
    return planner.plan(small_problem(tmp_path), analysis, target, Goals(), history, ())


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
    made = planner.plan(problem, ANALYSIS, target, Goals(), (), (), barren=("s0", "s2"))
    assert names(made) == ["s1", "s3"]


@pytest.mark.parametrize(("kind", "expected"), [("memory", 2.0 / 0.9), ("latency", 4.0)])
def test_predictions_come_from_the_roofline(tmp_path: Path, kind: str, expected: float) -> None:
    analysis = ANALYSIS.model_copy(update={"roofline": kind})
    made = plan(tmp_path, offer(None), analysis=analysis)
    assert made.hypotheses[0].predicted_us == pytest.approx(expected)


def test_decisions_name_what_the_patterns_call_for(tmp_path: Path) -> None:
    rows = ANALYSIS.model_copy(update={"patterns": ("layer_norm",)})
    products = ANALYSIS.model_copy(update={"patterns": ("linear",), "roofline": "compute"})
    of_rows, of_products = plan(tmp_path, (), analysis=rows), plan(tmp_path, (), analysis=products)
    assert of_rows.decision("row.num_warps") == "auto"
    assert of_rows.decision("gemm.fp32.tile") is None
    assert of_products.decision("gemm.fp32.tile") == "auto"
    assert of_products.decision("focus") == "tensor cores"
    assert {item.because for item in of_rows.decisions} == {"default"}
