"""Does the first line of a result say what was found, and green only what is surely faster?"""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel.cli.rendering.answer import answer
from agentkernel.cli.rendering.run import figure_rows, files
from agentkernel.cli.rendering.verdict import verdict_lines
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.formatting import counted, told_apart
from agentkernel.domain.verdict import (
    CaseResult,
    CompileFailed,
    ExecutionFailed,
    Failure,
    InputsChanged,
    LoadFailed,
    Policy,
    PolicyViolation,
    RaceFound,
    RunFailed,
    Verdict,
    WrongMeta,
)
from agentkernel.workflows.answer import answer_html, fastest_baseline, holds_for, use_lines
from agentkernel.workflows.outcome import Result
from tests.cli.run_events import result
from tests.workflows.fakes import mismatch, verdict

MEASURED = {
    "status": "improved",
    "measured": True,
    "interpreted": False,
    "time_us": 100.0,
    "eager_us": 250.0,
    "compiled_us": 182.0,
    "speedup_vs_eager": 2.5,
    "speedup_vs_compile": 1.82,
    "speedup_ci95": (1.81, 1.83),
    "roofline_fraction": 0.91,
}
KEPT = {"status": "kept_compiled", "baseline": "torch.compile", "candidate": None}


def measured(**changes: object) -> Result:
    return result(**(MEASURED | changes))


@pytest.mark.parametrize(
    ("found", "words", "colour"),
    [
        (
            measured(),
            "1.82x faster than torch.compile [1.81, 1.83], 91% of the roofline",
            "green",
        ),
        (
            measured(speedup_ci95=(0.99, 1.03)),
            "cannot tell whether it is faster than torch.compile [0.99, 1.03], 91% of the roofline",
            "yellow",
        ),
        (
            measured(**KEPT, speedup_vs_compile=0.9, speedup_ci95=(0.89, 0.91)),
            "Nothing faster than torch.compile was found: torch.compile is kept. The best "
            "candidate: 0.90x the speed of torch.compile [0.89, 0.91]",
            "yellow",
        ),
        (measured(**KEPT), None, "yellow"),
        (
            result(
                status="kept_original",
                candidate=None,
                baseline="eager",
                reason="c1 was drafted; the time limit of 60 s was over before it was judged",
            ),
            "No kernel was judged in time: eager is kept. Out of time. Go on with: "
            "agentkernel resume layernorm-1 --time 10m",
            "yellow",
        ),
        (
            result(
                status="kept_original",
                candidate=None,
                baseline="eager",
                reason="2 candidates drafted, none accepted; the last one stopped at 'run'",
            ),
            "No candidate was accepted by the judge: eager is kept",
            "yellow",
        ),
        (
            result(
                status="kept_original",
                candidate=None,
                baseline="eager",
                reason="no candidate was drafted",
            ),
            "No candidate was drafted: eager is kept",
            "yellow",
        ),
        (
            result(),
            "Correct, not measured: no GPU. Estimated 1.31x to 1.58x the speed of eager on "
            "h100-sxm",
            "yellow",
        ),
        (
            result(estimated_speedup_vs_eager=1.05),
            "Correct, not measured: no GPU. An estimate for h100-sxm cannot tell whether it is "
            "faster than eager",
            "yellow",
        ),
        (result(estimated_time_us=None), "Correct, not measured", "yellow"),
        (
            result(status="failed", candidate=None),
            "The run failed: nothing is handed over",
            "red",
        ),
        (
            result(interrupted=True, candidate=None, drafts=2),
            "Interrupted. Kept: 2 drafts. Go on with: agentkernel resume layernorm-1",
            "yellow",
        ),
        (
            measured(interrupted=True, roofline_fraction=None),
            "Interrupted. Kept: 1 draft. Best so far: 1.82x faster than torch.compile "
            "[1.81, 1.83]. Go on with: agentkernel resume layernorm-1",
            "green",
        ),
    ],
)
def test_the_answer_is_a_sentence(found: Result, words: str | None, colour: str) -> None:
    line = answer(found, None)
    assert words is None or line.plain == words
    assert line.style == f"bold {colour}"
    assert found.status == "failed" or found.status not in line.plain


LOST = "for its own inputs your module gives NaN (100% of the values): 2 of 3 cases could not"


def test_what_could_not_be_compared_is_not_called_plainly_correct() -> None:
    found = result(uncompared=LOST)
    assert answer(found, None).plain.startswith("Correct where it can be compared, not measured")
    assert use_lines(found, None)[0] == ("warning", LOST)
    timed = measured(uncompared=LOST)
    assert answer(timed, None).plain.endswith(
        "91% of the roofline, correct where it can be compared"
    )


def test_a_verdict_says_that_the_modules_own_inputs_could_not_be_compared() -> None:
    notes = [
        f"left out: {name}, seed 3, x float32[4, 8]: 100% of the reference's values are not finite"
        for name in ("normal", "own", "ones", "zeros")
    ]
    found = verdict(Candidate(source="x", coder="", round=0)).evolve(notes=tuple(notes))
    said = "(100% of the values): 4 of 5 cases could not be compared"
    assert found.uncompared.endswith(said)
    head, warning, *rest = verdict_lines(found)
    assert head.startswith("Accepted: correct where it can be compared")
    assert warning == found.uncompared
    assert not any(line.startswith("left out: ") for line in rest)
    assert any(line.startswith("4 cases left out, as the original gives NaN") for line in rest)
    held = holds_for(result(), found.evolve(cases=(case("a"), case("b"))), ["c"])
    assert (
        held == "forward only, free sizes (2 judged, not the declared ones: nothing finite to "
        "compare)"
    )
    few = found.evolve(notes=(notes[0], notes[2]))
    assert few.uncompared == ""
    head, *rest = verdict_lines(few)
    assert "where it can be compared" not in head
    assert set(few.notes) <= set(rest)


def test_why_it_is_for_eval_mode_or_forward_only_is_said_once() -> None:
    raises = "eval mode only: in training it raises ValueError: dropout"
    refused = "gradients are refused: RuntimeError: use the original"
    found = verdict(Candidate(source="x", coder="", round=0)).evolve(
        eval_only=True, gradients=False, notes=(raises, refused, "needed: a flag")
    )
    lines = verdict_lines(found)
    assert [line for line in lines if "eval mode only" in line] == [f"for {raises}"]
    assert [line for line in lines if "gradients" in line] == [f"forward only: {refused}"]
    assert "needed: a flag" in lines
    assert f"forward only ({refused})" in holds_for(result(), found)
    bare = found.evolve(notes=())
    assert "for eval mode only: in training it raises an error" in verdict_lines(bare)
    assert holds_for(result(), bare).startswith("forward only, ")


def test_eagers_error_of_an_odd_case_is_not_shown_as_that_of_the_modules_own_inputs() -> None:
    usual = case("x float32[8, 8]")
    odd = usual.evolve(distribution="shifted", shapes="x float32[3, 8]", eager_norm_error=2e-1)
    found = verdict(Candidate(source="x", coder="", round=0)).evolve(cases=(usual, odd))
    assert found.worst_eager_case == "shifted, x float32[3, 8]"
    near = odd.evolve(eager_norm_error=5e-7)
    assert found.evolve(cases=(usual, near)).worst_eager_case == ""
    assert found.evolve(cases=()).worst_eager_case == ""
    exact = {"norm_error": 0.0, "eager_norm_error": 0.0}
    assert found.evolve(cases=(usual.evolve(**exact),)).worst_eager_case == ""
    both = found.evolve(
        cases=(usual.evolve(distribution="own"), odd.evolve(distribution="large", norm_error=2e-1))
    )
    assert both.worst_eager_case == "large, x float32[3, 8]", "the candidate is as far off there"
    shown = result(
        error_vs_oracle=1e-7, eager_error_vs_oracle=2e-1, eager_error_case=found.worst_eager_case
    )
    said = "1.0e-07 (eager 2.0e-01 in the case 'shifted, x float32[3, 8]')"
    assert any(text.startswith(said) for _, text in figure_rows(shown))
    assert said in answer_html(shown).replace("&#x27;", "'")
    assert any(line.endswith(f"passed; error against fp64 {said}") for line in verdict_lines(found))


def test_the_interval_is_of_the_fastest_baseline() -> None:
    assert fastest_baseline(measured()).name == "torch.compile"
    assert fastest_baseline(measured(compiled_us=300.0)).name == "eager"
    tuned = measured(autotuned_us=150.0, speedup_vs_autotune=1.5)
    assert fastest_baseline(tuned) == ("max-autotune", 1.5)


def case(shapes: str) -> CaseResult:
    return CaseResult(
        label=shapes,
        seed=0,
        distribution="normal",
        shapes=shapes,
        norm_error=1e-7,
        eager_norm_error=1e-7,
        element_error=1e-7,
        eager_element_error=1e-7,
        passed=True,
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "forward only"),
        (
            {"gradients": True},
            "forward and gradients, training too where ModelNew itself is called",
        ),
        (
            {"eval_only": True},
            "forward only, eval mode only (an applied model that trains runs its own modules)",
        ),
        ({"cases": (case("a"), case("b"), case("b"))}, "forward only, free sizes (2 judged)"),
        (
            {"cases": (case("a"), case("b")), "declared_sizes": True},
            "forward only, the declared sizes only: at others it raises",
        ),
    ],
)
def test_it_says_what_a_drop_in_holds_for(changes: dict[str, object], words: str) -> None:
    verdict = Verdict(
        candidate="c",
        problem="p",
        accepted=True,
        interpreted=True,
        device="cpu",
        gate="accepted",
    ).evolve(**changes)
    assert holds_for(result(), verdict) == words


@pytest.mark.parametrize("interpreted", [True, False])
def test_it_says_that_the_declared_sizes_were_too_large_to_interpret(interpreted: bool) -> None:
    verdict = Verdict(
        candidate="c", problem="p", accepted=True, interpreted=interpreted, device="cpu",
        gate="accepted", cases=(case("a"), case("b")),
    )  # fmt: skip
    smaller = "free sizes (2 judged, not the declared ones: too large without a GPU)"
    whole = "free sizes (2 judged)"
    expected = smaller if interpreted else whole
    assert holds_for(result(), verdict, ["c"]) == f"forward only, {expected}"
    assert holds_for(result(), verdict, ["a"]) == f"forward only, {whole}"


@pytest.mark.parametrize("name", ["norm_optimized", "my-model_optimized", "class", "it's"])
def test_the_import_works_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Run as it is printed, beside the drop-in, above it and elsewhere."""
    (tmp_path / "models").mkdir()
    path = tmp_path / "models" / f"{name}.py"
    path.write_text("class ModelNew: pass\n")
    for folder in (tmp_path / "models", tmp_path, tmp_path.parent):
        monkeypatch.chdir(folder)
        (what, line), *_ = use_lines(result(candidate=str(path)), None)
        assert what == "use it"
        subprocess.run([sys.executable, "-c", line], check=True, cwd=folder)
        assert ("sys.path" in line) == (folder != path.parent)
        if folder != path.parent:  # and from anywhere else
            subprocess.run([sys.executable, "-c", line], check=True, cwd="/")


def test_the_drop_ins_of_two_runs_are_imported_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run as they are printed, one after the other in one process."""
    lines = []
    for number, run in enumerate(("norm-20261130-090000-aaaa", "norm-20261130-090100-bbbb")):
        path = tmp_path / "runs" / run / "norm_optimized.py"
        path.parent.mkdir(parents=True)
        path.write_text(f"class ModelNew: number = {number}\n")
        monkeypatch.chdir(tmp_path)
        lines.append(use_lines(result(candidate=str(path), run=run), None)[0][1])
    text = "\n".join(f"{line}; assert ModelNew.number == {n}" for n, line in enumerate(lines))
    subprocess.run([sys.executable, "-c", text], check=True, cwd=tmp_path)


def test_the_picture_is_listed_beside_the_report() -> None:
    lines = files(result(picture="/out/b.roofline.svg")).plain.splitlines()
    assert lines[-1] == "roofline     /out/b.roofline.svg"
    assert not any("roofline" in line for line in files(result()).plain.splitlines())


def test_a_name_stands_once_with_its_count() -> None:
    assert counted(["mm", "add", "mm", "mm"]) == ["mm x 3", "add"]


def test_a_mismatch_is_shown_with_as_many_digits_as_tell_the_values_apart() -> None:
    failure = mismatch().evolve(expected=-1.0431502151653564, found=-1.043148159980774)
    lines = verdict_lines(verdict(Candidate(source="x", coder="", round=0), failure=failure))
    assert f"  at {list(failure.first_index)}: -1.043148 where -1.04315 is right" in lines


@pytest.mark.parametrize(
    ("pattern", "place"),
    [
        ("all", "all of the output"),
        ("nan", "nan, first at [0, 1], 10% of the elements"),
        (
            "every 2-th",
            "every 2-th row or column, first at [0, 1]: one lane or tile of each group, "
            "10% of the elements",
        ),
        ("scattered", "scattered, 10.00% of the elements, first at [0, 1]"),
    ],
)
def test_wrong_values_are_told_in_sentences(pattern: str, place: str) -> None:
    changed = {"pattern": pattern, "wrong_share": 0.1, "first_index": (0, 1), "output": 2}
    found = verdict(Candidate(source="x", coder="", round=0), failure=mismatch().evolve(**changed))
    lines = verdict_lines(found)
    assert f"  output 2 is wrong: {place}" in lines
    assert any(line.startswith(f"  Next: fix that; --seed {found.seed} ") for line in lines)


@pytest.mark.parametrize("policy", ["triton", "mixed"])
def test_each_gate_says_what_to_do_next(policy: Policy) -> None:
    failures: list[Failure] = [
        PolicyViolation(rule="torch-compute", line=3, text="torch.mm"),
        LoadFailed(log="no ModelNew"),
        CompileFailed(log="tl.dot: shapes", line=7),
        RunFailed(reason="raised", log="KeyError", case="normal"),
        WrongMeta(case="normal", output=0, expected="float32", found="float16"),
        InputsChanged(case="normal", name="x"),
        ExecutionFailed(rule="no-kernel", text="forward launched none"),
        RaceFound(tool="scan", line=3, text="two programs"),
        mismatch(),
    ]
    for failure in failures:
        found = verdict(Candidate(source="x", coder="", round=0), failure=failure)
        (last,) = [x for x in verdict_lines(found.evolve(policy=policy)) if "  Next: " in x]
        assert f"--seed {found.seed}" in last
        forbidden = failure.kind in ("policy", "execution")
        assert ("--policy mixed" in last) == (forbidden and policy == "triton")
        assert ("--json" in last) == (failure.kind in ("load", "compile", "run", "mismatch"))
        assert "by itself" not in last, "nobody is sent out of the sandbox"


@pytest.mark.parametrize(
    ("rule", "step"),
    [
        ("syntax", "fix the syntax"),
        ("import", "take that import out"),
        ("no-model", "define ModelNew"),
        ("no-kernel", "as a @triton.jit function"),
        ("dunder", "take that out"),
        ("torch-namespace", "a kernel of your own"),
        ("lossy-product", "in the precision in force"),
    ],
)
def test_a_rule_of_the_policy_has_a_step_of_its_own(rule: str, step: str) -> None:
    failure = PolicyViolation(rule=rule, line=3, text="x")
    found = verdict(Candidate(source="x", coder="", round=0), failure=failure)
    lines = verdict_lines(found.evolve(policy="triton"))
    (last,) = [line for line in lines if line.startswith("  Next: ")]
    assert step in last
    assert ("--policy mixed" in last) == (rule in ("no-kernel", "torch-namespace"))


@pytest.mark.parametrize(
    ("policy", "end"), [("triton", "view and copy"), ("mixed", "attention that the original has")]
)
def test_a_candidate_in_plain_torch_is_told_whose_work_it_is(policy: Policy, end: str) -> None:
    """Beside the next step, which no client of the MCP server is shown."""
    failure = PolicyViolation(rule="torch-compute", line=3, text="torch.logsumexp")
    found = verdict(Candidate(source="x", coder="", round=0), failure=failure)
    (why,) = [x for x in verdict_lines(found.evolve(policy=policy)) if x.startswith("  why: ")]
    assert "in Triton kernels of the candidate's own" in why
    assert why.endswith(end)


def test_an_error_at_one_element_is_no_rounding_of_the_whole() -> None:
    """A term that is off by a quarter of a per mille in rows of large values."""
    failure = mismatch().evolve(
        norm_error=6e-8, norm_allowed=1e-6, largest_error=2.5e-4, largest_allowed=1e-6,
        measure="largest", first_index=(0, 0), expected=0.4, found=0.4001,
    )  # fmt: skip
    lines = "\n".join(
        verdict_lines(verdict(Candidate(source="x", coder="", round=0), failure=failure))
    )
    assert "but for rounding" not in lines
    near = failure.evolve(largest_error=2e-6)
    lines = "\n".join(
        verdict_lines(verdict(Candidate(source="x", coder="", round=0), failure=near))
    )
    assert "but for rounding" in lines


def test_a_scalar_is_wrong_at_no_place() -> None:
    failure = mismatch().evolve(first_index=(), pattern="nan", wrong_share=1.0, output=0)
    lines = verdict_lines(verdict(Candidate(source="x", coder="", round=0), failure=failure))
    expected, found = told_apart(failure.expected, failure.found)
    assert f"  output 0 is wrong: {found} where {expected} is right" in lines


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"norm_allowed": 0.0, "norm_error": math.inf}, "integers and truth values must be equal"),
        (
            {"norm_error": math.inf},
            "NaN or infinities lie where the original has none, or none where it has some",
        ),
    ],
)
def test_an_infinite_error_beside_numbers_is_explained(
    changes: dict[str, object], words: str
) -> None:
    failure = mismatch().evolve(**changes)
    lines = verdict_lines(verdict(Candidate(source="x", coder="", round=0), failure=failure))
    assert f"  {words}" in lines


def test_an_accepted_kernel_without_gradients_says_so() -> None:
    candidate = Candidate(source="x", coder="", round=0)
    for gradients in (False, True):
        lines = verdict_lines(verdict(candidate).evolve(gradients=gradients))
        assert any(line.startswith("forward only") for line in lines) is not gradients
