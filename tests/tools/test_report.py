from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentkernel.domain.candidate import Candidate, Draft, TrialResult
from agentkernel.domain.certificate import Certificate
from agentkernel.domain.plan import Decision, Hypothesis, Plan
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


def report(*, measured: bool, third: dict[str, object] | None = None) -> str:
    problem = Problem(
        name="plus",
        origin="file",
        path="plus.py",
        source="",
        class_name="Model",
        shape_sets=(ShapeSet(inputs=(TensorSpec(name="x", dtype="float32", shape=(4, 8)),)),),
    )
    called = EAGER.model_copy(update={"low99": 1.9, "high99": 2.1, "call": "faster"})
    timed = measurement(called).model_copy(update={"clock": CLOCK} | (third or {}))
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
        plan=PLAN,
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


def test_the_third_baseline_is_shown_where_it_was_tried() -> None:
    timed = measurement()
    text = report(measured=True, third={"autotuned": timed.eager, "vs_autotune": EAGER})
    assert "max-autotune at `x float32[4, 8]`: 20.0 µs, the candidate's speedup over it" in text
    failed = report(measured=True, third={"autotune_error": "died: exit -9"})
    assert "max-autotune at `x float32[4, 8]`: failed: died: exit -9." in failed
    assert "- torch.compile's max-autotune at x float32[4, 8]: failed: died: exit -9." in failed
    left = report(measured=True, third={"autotune_error": "left out on request"})
    assert "max-autotune at `x float32[4, 8]`: left out on request." in left
    assert "max-autotune" not in report(measured=True)


def test_every_table_has_rows_as_wide_as_its_head() -> None:
    width = 0
    for line in report(measured=True).splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        width = width or line.count("|")
        assert line.count("|") == width, line
