from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentkernel.domain.candidate import Candidate, Draft, TrialResult
from agentkernel.domain.certificate import Certificate
from agentkernel.domain.plan import Algebra, AlgebraStep, Decision, Hypothesis, Plan, Work
from agentkernel.domain.problem import Problem, ShapeSet, TensorSpec
from agentkernel.domain.profile import ClockCheck
from agentkernel.tools.report import Entry, render_report
from fakes import (
    ANALYSIS,
    EAGER,
    NOTE,
    VERSIONS,
    apply_hints,
    measurement,
    mismatch,
    profile,
    verdict,
)

GOLDEN = Path(__file__).parent.parent / "golden"
FIRST = Candidate(source="one", coder="compiler", round=1, strategy="row in registers")
SECOND = Candidate(
    source="two", coder="compiler", round=1, strategy="two rows", parent=FIRST.sha256
)
CLOCK = ClockCheck(
    state="too_short",
    outside_us=10.4,
    outside_low_us=10.2,
    inside_us=10.0,
    volleys=12,
    calls=120,
    checked_outputs=7,
)
PLAN = apply_hints(
    Plan(
        analysis=ANALYSIS,
        hypotheses=(Hypothesis(strategy="row in registers", reason="fits", predicted_us=2.2),),
        decisions=(Decision(key="row.num_warps", value="auto", default="auto", because="default"),),
    ),
    (NOTE,),
)
DRAFT = Draft(
    candidate=SECOND,
    tried=(
        TrialResult(
            label="8 warps", sha256="0" * 64, schedule={"k": {"num_warps": 8}}, time_us=9.5
        ),
        TrialResult(
            label="1 | warp", sha256="1" * 64, schedule={}, pruned="spills", estimated_us=3.0
        ),
    ),
)


STEP = AlgebraStep(
    rule="product sums",
    derivation="sum_j (x W + b)_j = x (sum_j W_j) + sum(b)",
    because="The product shrinks to one column.",
    before=Work(flops=4000, bytes_moved=900),
    after=Work(flops=40, bytes_moved=300),
)


def rewritten(strategy: str) -> Plan:
    """The plan with a hypothesis that starts from a rewritten graph."""
    algebra = Algebra(steps=(STEP,), before=STEP.before, after=STEP.after)
    idea = Hypothesis(strategy=strategy, reason="fewer", algebra=algebra)
    return PLAN.model_copy(update={"hypotheses": (*PLAN.hypotheses, idea)})


def report(*, measured: bool, plan: Plan = PLAN) -> str:
    problem = Problem(
        name="plus",
        origin="file",
        path="plus.py",
        source="",
        class_name="Model",
        shape_sets=(ShapeSet(inputs=(TensorSpec(name="x", dtype="float32", shape=(4, 8)),)),),
    )
    called = EAGER.model_copy(update={"low99": 1.9, "high99": 2.1, "call": "faster"})
    timed = measurement(called).model_copy(update={"clock": CLOCK})
    found = profile(SECOND, *((timed,) if measured else ()))
    accepted = verdict(SECOND).model_copy(update={"repeatable": True, "eval_only": not measured})
    certificate = Certificate(
        run="plus-20261121-100000-abcd",
        created="2026-11-21T10:00:00+00:00",
        status="met" if measured else "verified",
        reason="2.000x against eager" if measured else "accepted by the judge",
        basis="measured" if measured else "estimated",
        problem=problem,
        problem_sha256=problem.sha256,
        candidate_source=SECOND.source,
        candidate_sha256=SECOND.sha256,
        target="h100-sxm",
        plan=plan,
        verdict=accepted,
        profile=found,
        versions=VERSIONS,
        judge_sha256="0" * 64,
    )
    entries = (
        Entry(candidate=FIRST, verdict=verdict(FIRST, mismatch()), profile=None),
        Entry(candidate=SECOND, verdict=accepted, profile=found),
    )
    return render_report(
        certificate, entries, (NOTE,), (DRAFT,), stop="met" if measured else "estimate"
    )


@pytest.mark.parametrize("measured", [True, False], ids=["measured", "estimated"])
def test_golden(measured: bool) -> None:
    path = GOLDEN / f"report_{'measured' if measured else 'estimated'}.md"
    text = report(measured=measured)
    if os.environ.get("REGOLD"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_an_unmeasured_report_shows_no_measured_figure() -> None:
    text = report(measured=False)
    assert "## Measured" not in text
    assert "No time, memory or energy was measured" in text
    rows = [line for line in text.splitlines() if line.startswith(f"| {SECOND.id}")]
    cells = [cell.strip() for cell in rows[0].strip("|").split("|")]
    assert cells[8:12] == ["–", "–", "–", "–"]
    assert cells[12] == "2.5"


def test_each_rewrite_has_its_formula_and_what_it_saved() -> None:
    text = report(measured=False, plan=rewritten(SECOND.strategy))
    section = text.partition("## Algebra")[2].partition("\n## ")[0]
    assert f"1. **{STEP.rule}**: `{STEP.derivation}`.\n   {STEP.because}\n" in section
    assert "| 1. product sums | 900 | 300 | 4000 | 40 |" in section
    assert "| together | 900 | 300 (3.0× fewer) | 4000 | 40 (100.0× fewer) |" in section
    assert "The drop-in was written from the rewritten graph." in section


def test_a_drop_in_of_another_strategy_is_not_said_to_be_rewritten() -> None:
    text = report(measured=False, plan=rewritten("algebra"))
    assert "the result does not come from it" in text


def test_without_rewrites_there_is_no_such_section() -> None:
    assert "## Algebra" not in report(measured=True)


def test_every_table_has_rows_as_wide_as_its_head() -> None:
    width = 0
    for line in report(measured=True, plan=rewritten("algebra")).splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        width = width or line.count("|")
        assert line.count("|") == width, line
