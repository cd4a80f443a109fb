from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentkernel.agents.models.costs import Account
from agentkernel.domain.candidate import Candidate, Draft, TrialResult
from agentkernel.domain.certificate import Certificate
from agentkernel.domain.formatting import usd_text
from agentkernel.domain.plain_text import sentence
from agentkernel.domain.plan import (
    Algebra,
    AlgebraStep,
    Calibration,
    Decision,
    Hypothesis,
    Plan,
    Work,
)
from agentkernel.domain.problem import Problem, ShapeSet, TensorSpec
from agentkernel.domain.profile import ClockCheck
from agentkernel.domain.verdict import Verdict
from agentkernel.workflows.report import (
    DiagnosisEntry,
    ModelsSection,
    ReportEntry,
    render_report,
)
from tests.workflows.fakes import (
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

GOLDEN = Path(__file__).parents[1] / "golden"
FIRST = Candidate(source="one", coder="compiler", round=1, strategy="row in registers")
SECOND = Candidate(
    source="two", coder="compiler", round=1, strategy="two rows", parent=FIRST.sha256,
    schedule={"k": {"num_warps": 4, "BLOCK_N": 1024}},
)  # fmt: skip
CLOCK = ClockCheck(
    state="too_short", outside_us=10.4, outside_low_us=10.2, inside_us=10.0, volleys=12,
    calls=120, checked_outputs=7,
)  # fmt: skip
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
    return PLAN.evolve(hypotheses=(*PLAN.hypotheses, idea))


CODER = Account(
    label="coder", questions=2, requests=3, prompt=9200, completion=1500, cached=4000,
    cost_usd=0.0274, seconds=11.9,
)  # fmt: skip
PLANNER = Account(
    label="planner", questions=1, requests=1, unpriced=1, seconds=2.0, gpu_seconds=1.5
)
TOTAL = CODER.evolve(
    label="total", questions=3, requests=4, unpriced=1, seconds=13.9, gpu_seconds=1.5,
)  # fmt: skip
MODELS = ModelsSection(
    by_agent=(PLANNER, CODER),
    by_round=(
        PLANNER.evolve(label="0"),
        CODER.evolve(label="1"),
    ),
    by_model=(
        PLANNER.evolve(label="local:./w"),
        CODER.evolve(label="chat:openai:m"),
    ),
    total=TOTAL,
    unpriced=("`local:./w` runs in this process: what it costs is its GPU's time.",),
    calibration=(
        Calibration(predicted_by="", predictions=3, within=2, ratio=1.25),
        Calibration(predicted_by="local:./w", predictions=1, within=0, ratio=None),
    ),
    diagnoses=(
        DiagnosisEntry(
            candidate=FIRST.id, round=1, failure_class="mismatch:tail", action="next_hypothesis",
            advice="Mask | the `tail`.\n<b>", by="local:./w",
        ),
    ),
    replayed="plus-1",
)  # fmt: skip


def section_of(models: ModelsSection | None) -> str:
    """The report's part on models."""
    text = report(measured=False, models=models)
    return text.partition("## Models\n")[2].partition("\n## ")[0]


def report(
    *,
    measured: bool,
    plan: Plan = PLAN,
    third: dict[str, object] | None = None,
    models: ModelsSection | None = None,
    first: Candidate = FIRST,
    accepted: Verdict | None = None,
    reason: str | None = None,
    segments: tuple[str, ...] = (),
) -> str:
    problem = Problem(
        name="plus", origin="file", path="plus.py", source="", class_name="Model",
        shape_sets=(ShapeSet(inputs=(TensorSpec(name="x", dtype="float32", shape=(4, 8)),)),),
    )  # fmt: skip
    called = EAGER.evolve(low99=1.9, high99=2.1, call="faster")
    timed = measurement(called).evolve(**{"clock": CLOCK} | (third or {}))
    found = profile(SECOND, *((timed,) if measured else ()))
    if accepted is None:
        said = {"repeatable": True, "eval_only": not measured}
        accepted = verdict(SECOND).evolve(**said)
    certificate = Certificate(
        run="plus-20261121-100000-abcd", created="2026-11-21T10:00:00+00:00",
        status="met" if measured else "verified",
        reason=reason or ("2.000x against eager" if measured else "accepted by the judge"),
        basis="measured" if measured else "estimated", problem=problem,
        problem_sha256=problem.sha256, candidate_source=SECOND.source,
        candidate_sha256=SECOND.sha256, target="h100-sxm", plan=plan, verdict=accepted,
        profile=found, versions=VERSIONS, judge_sha256="0" * 64, segments=segments,
    )  # fmt: skip
    entries = (
        ReportEntry(candidate=first, verdict=verdict(first, mismatch()), profile=None),
        ReportEntry(candidate=SECOND, verdict=accepted, profile=found),
    )
    return render_report(
        certificate,
        entries,
        (NOTE,),
        (DRAFT,),
        stop="met" if measured else "estimate",
        models=models,
    )


@pytest.mark.parametrize("measured", [True, False], ids=["measured", "estimated"])
def test_golden(measured: bool) -> None:
    path = GOLDEN / f"report_{'measured' if measured else 'estimated'}.md"
    text = report(measured=measured)
    if os.environ.get("REGOLD"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_golden_of_the_models() -> None:
    path = GOLDEN / "report_models.md"
    text = section_of(MODELS)
    if os.environ.get("REGOLD"):
        path.write_text(text)
    assert text == path.read_text()


def test_segments_of_models_are_named() -> None:
    line = "mul, softmax by chat:openai:m, 5.00 µs alone, 10.0 µs before, measured"
    text = report(measured=True, segments=(line, "x\n# Met by local:./w"))
    said = text.partition("each judged alone before the whole was:\n\n")[2]
    assert said.startswith(f"- {line}\n- x # Met by local:./w\n")
    assert "judged alone" not in report(measured=True)


def test_where_no_model_was_asked_there_is_no_such_section() -> None:
    assert "Models" not in report(measured=True)


def test_a_models_words_stay_words() -> None:
    hostile = "x\n\n# Met | `y` <script> ![i](http://h/i) [l](http://h)"
    idea = Hypothesis(strategy=hostile, reason=hostile, predicted_by="local:./w")
    plan = PLAN.evolve(hypotheses=(idea,))
    wild = FIRST.evolve(strategy=f'{hostile}"] --> end')
    text = report(measured=True, plan=plan, models=MODELS, first=wild)
    assert "# Met" in text
    for form in ("\n# Met", "<script>", "](http", "`y`"):
        assert form not in text
    assert '"] --> end' not in text.partition("```mermaid")[2].partition("```")[0]


def test_what_could_not_be_compared_stands_at_the_top() -> None:
    note = "left out: own, seed 3, x float32[4, 8]: 60% of the reference's values are not finite"
    text = report(measured=False, accepted=verdict(SECOND).evolve(notes=(note,)))
    head = text.partition("## Candidates")[0]
    assert "# plus: Right where it can be compared; nothing could be measured" in head
    assert "Warning: for its own inputs your module gives NaN or infinities (60% of the" in head
    assert "Warning" not in report(measured=False)


def test_nothing_is_said_of_what_there_is_not() -> None:
    bare = ModelsSection(by_agent=(CODER,), by_round=(CODER,), by_model=(CODER,), total=CODER)
    text = section_of(bare)
    assert "All by `coder`." in text
    assert "No expectation could be held against a measured time." in text
    assert "| model |" not in text
    assert "diagnosed" not in text
    assert "given again" not in text


@pytest.mark.parametrize(
    ("cost", "unpriced", "text"),
    [
        (None, 2, "no price known"),
        (0.0, 0, "0.0000"),
        (0.01234, 0, "0.0123"),
        (0.01234, 1, "at least 0.0123"),
        (0.0000213, 0, "2.1e-05"),
    ],
)
def test_money(cost: float | None, unpriced: int, text: str) -> None:
    assert usd_text(cost, unpriced) == text


@pytest.mark.parametrize("reason", ["It asks.", "It asks", "It asks. So", "It asks.. ", "Who?"])
def test_a_reason_ends_once(reason: str) -> None:
    """A baseline's own words may be sentences."""
    text = report(measured=True, reason=reason, third={"autotuned": None, "autotune_error": reason})
    assert f": {sentence(reason)}\n" in text
    assert sentence(reason)[-1] in ".?"
    assert ".." not in text
    assert "?." not in text


def test_an_unmeasured_report_shows_no_measured_figure() -> None:
    text = report(measured=False)
    assert "## Measured" not in text
    assert "No time, memory or energy was measured" in text
    rows = [line for line in text.splitlines() if line.startswith(f"| {SECOND.id}")]
    cells = [cell.strip() for cell in rows[0].strip("|").split("|")]
    assert (cells[8:13], cells[13]) == (["–", "–", "–", "–", "–"], "2.5")


def test_a_run_that_a_gpu_judged_is_not_said_to_have_had_none() -> None:
    refused = verdict(FIRST, mismatch()).evolve(interpreted=False, device="NVIDIA H100 80GB HBM3")
    text = report(measured=False, accepted=refused)
    assert "Judged on NVIDIA H100 80GB HBM3, where no candidate came to be timed." in text
    assert "no GPU" not in text


def test_the_schedule_of_the_file_stands_beside_the_decisions() -> None:
    plan = report(measured=False).partition("## Plan")[2]
    assert "The file has k: BLOCK_N=1024, num_warps=4." in plan


def test_the_margin_stands_beside_the_error() -> None:
    case = verdict(SECOND).cases[0].evolve(margin=0.4567)
    text = report(measured=False, accepted=verdict(SECOND).evolve(cases=(case,)))
    assert " | 0.46 | " in text.partition(f"| {SECOND.id}")[2].partition("\n")[0]


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
    for line in report(measured=True, plan=rewritten("algebra"), models=MODELS).splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        width = width or line.count("|")
        assert line.count("|") == width, line
