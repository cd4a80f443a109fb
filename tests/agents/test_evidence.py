"""Evidence names the mistake behind a refusal, and what is in the way of speed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from agentkernel.agents.evidence import (
    Evidence,
    SpeedEvidence,
    evidence_of,
    last_log_line,
    speed_evidence,
    tile_sizes,
)
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.exchange import Message, ModelRequest, Sampling
from agentkernel.domain.plan import Analysis
from agentkernel.domain.profile import CompileReport, KernelResources, Measurement, OpCost
from agentkernel.domain.verdict import (
    CaseResult,
    ExecutionFailed,
    Failure,
    InputsChanged,
    LoadFailed,
    Mismatch,
    PolicyViolation,
    RaceFound,
    RunFailed,
    TimingDisputed,
    Verdict,
    WrongMeta,
)
from agentkernel.tools.judge.comparison.compare import OutputValues, compare_output
from tests.agents.models.model_cases import COMPILE_FAILED, H100, analysis, candidate
from tests.workflows.fakes import measurement, profile, resources, verdict

Spoil = Callable[[torch.Tensor], torch.Tensor]


def found_by_judge(spoil: Spoil, case: str = "normal, seed 0", rows: int = 96) -> Mismatch:
    """What the judge says of a right result that was spoilt."""
    torch.manual_seed(0)
    right = torch.randn(rows, 96)
    values = OutputValues(spoil(right.clone()), right, right.double())
    made = compare_output(case, 0, values, "strict")
    assert made.mismatch is not None
    return made.mismatch


def refused(failure: Failure, made: Candidate | None = None) -> Evidence:
    made = made or candidate()
    return evidence_of(made, verdict(made, failure))


def said(failure: Failure, made: Candidate | None = None) -> dict[str, str]:
    return dict(refused(failure, made).facts)


def form(failure: Mismatch) -> str:
    return said(failure)["form of the error"]


def other_cases(*cases: CaseResult) -> str:
    return dict(evidence_of(candidate(), judged(*cases)).facts)["other cases"]


def at(index: int, value: float, step: int = 1) -> Spoil:
    def spoil(tensor: torch.Tensor) -> torch.Tensor:
        tensor[:, index::step] = value
        return tensor

    return spoil


TABLE: list[tuple[Spoil, str, str]] = [
    (lambda x: -x, "negated", "wrong sign"),
    (lambda x: x * 0, "zero", "0 everywhere"),
    (lambda x: x * 96, "constant factor", "96 times too large: a sum for a mean"),
    (lambda x: x / 96, "constant factor", "96 times too small"),
    (lambda x: x * 0.6931472, "constant factor", "ln 2"),
    (lambda x: x * 1.1, "constant factor", "1.1 times the right one"),
    (lambda x: x.T.contiguous(), "misplaced", "transposed"),
    (lambda x: x.roll(1, 0), "misplaced", "wrong row"),
    (lambda x: x + 3, "other", "missing term"),
    (lambda x: x.bfloat16().float(), "other", ""),
    (lambda x: x * (1 + 2e-6 * torch.randn(96, 96)), "rounding", "fp32"),
    (at(64, 0.0), "zero", "in the wrong places"),
]


@pytest.mark.parametrize(("spoil", "named", "words"), TABLE)
def test_forms_of_error(spoil: Spoil, named: str, words: str) -> None:
    found, _, explained = form(found_by_judge(spoil)).partition(": ")
    assert found == named
    assert words in explained


def test_the_size_of_rounding_names_the_format() -> None:
    loose = found_by_judge(lambda x: x.bfloat16().float())
    loose = loose.evolve(norm_allowed=loose.norm_error / 10, measure="norm")
    assert "bf16" in form(loose)
    half = found_by_judge(lambda x: x.half().float())
    half = half.evolve(norm_allowed=half.norm_error / 10, measure="norm")
    assert "tf32 or fp16" in form(half)


def test_what_is_half_as_much_again_is_no_rounding_of_16_bits() -> None:
    """A hundred times what is allowed of these would be more than the values."""
    found = found_by_judge(lambda x: x * 1.5).evolve(norm_allowed=3e-2, measure="norm")
    assert form(found).startswith("constant factor: the whole output is 1.5 times the right one")
    missing = found_by_judge(lambda x: x + 0.2).evolve(norm_allowed=3e-2, measure="norm")
    assert "missing term" in form(missing)


PLACES: list[tuple[Spoil, str]] = [
    (lambda x: x + 3, "all of the output"),
    (at(64, 0.0), "the tail, from [0, 64] on to the end"),
    (at(1, 0.0, step=4), "every 4-th row or column, first at [0, 1]"),
    (lambda x: x.index_fill(0, torch.tensor(7), 9.0), "one row, at [7, 0]: one program"),
]


@pytest.mark.parametrize(("spoil", "words"), PLACES)
def test_places(spoil: Spoil, words: str) -> None:
    assert words in said(found_by_judge(spoil))["place"]


def test_the_first_wrong_index_is_set_against_the_tiles() -> None:
    made = candidate(source="BLOCK_N: tl.constexpr = 32\nk[(1,)](x, BM=48, N=7)\n")
    made = made.evolve(schedule={"k": {"TILE": 64, "num_warps": 4}})
    assert tile_sizes(made) == {"BLOCK_N": 32, "BM": 48, "N": 7, "TILE": 64}
    found = said(found_by_judge(at(64, 0.0)), made)
    assert found["tile edges"] == "64 is 2 x BLOCK_N (32); 64 is 1 x TILE (64)"


NANS: list[tuple[str, Spoil, str]] = [
    ("large, seed 1", at(0, float("nan")), "subtract the maximum"),
    ("zeros, seed 1", at(0, float("nan")), "0 / 0"),
    ("normal, seed 1", at(0, float("nan")), "masked loads"),
    ("normal, seed 1", at(0, float("inf")), "division by 0"),
]


@pytest.mark.parametrize(("case", "spoil", "words"), NANS)
def test_where_nan_comes_from(case: str, spoil: Spoil, words: str) -> None:
    found = form(found_by_judge(spoil, case))
    assert found.startswith("special values: ")
    assert words in found


def test_a_nan_that_is_missing() -> None:
    right = torch.full((4, 4), float("nan"))
    values = OutputValues(torch.ones(4, 4), right, right.double())
    made = compare_output("nan", 0, values, "strict")
    assert made.mismatch is not None
    assert "hides it" in form(made.mismatch)


def case(distribution: str, shapes: str, passed: bool) -> CaseResult:
    return CaseResult(
        label="", seed=0, distribution=distribution, shapes=shapes, norm_error=0,
        eager_norm_error=0, element_error=0, eager_element_error=0, passed=passed,
    )  # fmt: skip


def judged(*cases: CaseResult) -> Verdict:
    return verdict(candidate(), found_by_judge(lambda x: x + 3)).evolve(cases=cases)


def test_what_passed_says_what_it_depends_on() -> None:
    small, odd = "x float32[4, 8]", "x float32[5, 7], y int64[5]"
    by_shape = case("normal", small, True), case("normal", odd, False)
    by_value = case("normal", odd, True), case("large", odd, False)
    assert other_cases(*by_shape).endswith("it depends on the shape")
    assert other_cases(*by_value).endswith("it depends on the values")
    assert ("input dtypes", "float32, int64") in evidence_of(candidate(), judged(*by_value)).facts


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ("strided", "right with contiguous inputs, wrong with strided ones"),
        ("expanded", "right with contiguous inputs, wrong with expanded ones"),
        ("offset", "right with aligned inputs"),
    ],
)
def test_what_is_wrong_for_one_layout_alone_does_not_depend_on_the_values(
    layout: str, words: str
) -> None:
    shapes = "x float32[4, 8]"
    laid = case("normal", shapes, False).evolve(
        label=f"normal, seed 3, x float32[4, 8], {layout} inputs"
    )
    found = other_cases(case("constant", shapes, True), laid)
    assert found.startswith(words)
    assert "depends on" not in found


def test_lines_that_read_past_every_tensor() -> None:
    told = "normal, seed 0 (loads outside of every tensor: add_one line 12)"
    found = refused(found_by_judge(lambda x: x + 3, told))
    assert found.line == 12
    assert ("reads past every tensor", "add_one line 12") in found.facts
    assert found.excerpt is not None


def test_a_compile_error() -> None:
    found = refused(COMPILE_FAILED)
    assert (found.kind, found.line) == ("compile", 11)
    assert ("error", "arange's range must be a power of 2") in found.facts
    assert found.rule.name == "power of two"
    assert ("line", "11") in found.facts


FAULTS: list[tuple[Failure, str, int | None]] = [
    (PolicyViolation(rule="no torch", line=3, text="torch.relu"), "torch.relu", 3),
    (RaceFound(tool="scan", line=12, text="y"), "scan: y", 12),
    (LoadFailed(log='File "candidate.py", line 6, in x\nKeyError: 1'), "KeyError: 1", 6),
    (
        RunFailed(reason="raised", log="candidate.py, line 17\nValueError", case="c"),
        "ValueError",
        17,
    ),
    (RunFailed(reason="timeout", log="", case="c"), "no log", None),
    (WrongMeta(case="c", output=1, expected="f32", found="f16"), "expected f32, found f16", None),
    (InputsChanged(case="c", name="x"), "x was written to", None),
    (ExecutionFailed(rule="no-kernel", text="none ran"), "no-kernel: none ran", None),
    (TimingDisputed(outside_us=2, inside_us=1, text="clocks differ"), "clocks differ", None),
]


@pytest.mark.parametrize(("failure", "words", "line"), FAULTS)
def test_other_failures(failure: Failure, words: str, line: int | None) -> None:
    found = refused(failure)
    assert (found.kind, found.line) == ("fault", line)
    assert words in dict(found.facts)["what happened"]
    assert (found.excerpt is None) == (line is None)


def test_a_refusal_without_a_failure() -> None:
    bare = verdict(candidate()).evolve(accepted=False, gate="run")
    assert "run" in evidence_of(candidate(), bare).facts[0].value


def test_last_words() -> None:
    assert last_log_line("a\n  ValueError: b  \n   ^\n\n") == "ValueError: b"
    assert last_log_line(" \n") == "no log"


def evidence(
    *kernels: KernelResources,
    measured: Measurement | None = None,
    library: tuple[str, ...] = (),
    facts: Analysis | None = None,
) -> SpeedEvidence:
    report = CompileReport(target="90", kernels=kernels, library_ops=library)
    made = profile(candidate(), *([measured] if measured else []))
    return speed_evidence(made.evolve(report=report), facts, H100)


def kernel(**changes: object) -> KernelResources:
    return resources().evolve(**{"grid": (1000, 1, 1), **changes})


def test_measured() -> None:
    found = evidence(kernel(), measured=measurement(roofline=0.4), facts=analysis())
    facts = dict(found.facts)
    assert found.basis == "measured"
    assert (facts["bound by"], facts["reached"]) == ("memory", "40%")
    assert facts["bandwidth"] == "3000 GB/s of 4300 GB/s that a copy reaches"
    assert found.findings == ()


def test_estimated_says_so() -> None:
    found = evidence(kernel())
    assert found.basis == "estimated"
    assert dict(found.facts)["time"] == "2.5 us, estimated"
    assert "bandwidth" not in dict(found.facts)


IN_THE_WAY: list[tuple[KernelResources, str]] = [
    (kernel(spill_bytes=128), "spills 128 bytes"),
    (kernel(occupancy=0.125), "keeps 12% of an SM's warps resident (24 registers"),
    (kernel(grid=(4, 1, 1)), "starts 4 programs on 132 SMs"),
    (kernel(fits=False, error="300000 bytes"), "does not fit the target: 300000 bytes"),
]


@pytest.mark.parametrize(("item", "words"), IN_THE_WAY)
def test_what_is_in_the_way_of_a_kernel(item: KernelResources, words: str) -> None:
    (finding,) = evidence(item).findings
    assert words in finding


def test_a_product_without_tensor_cores() -> None:
    compute = analysis(roofline="compute")
    assert "no tensor cores" in evidence(kernel(), facts=compute).findings[0]
    assert evidence(kernel(tensor_core="wgmma"), facts=compute).findings == ()


def test_launches_and_library() -> None:
    slow = measurement().evolve(launches=5, own_kernel_share=0.4)
    found = evidence(kernel(), measured=slow, library=("aten.mm",))
    assert "5 launches" in found.findings[0]
    assert "60% of the time is not in the own kernels: aten.mm" in found.findings[1]


def test_nothing_left() -> None:
    assert "nothing much" in evidence(kernel(), measured=measurement(roofline=0.95)).findings[0]


def test_the_bytes_are_split_by_launch() -> None:
    found = evidence(kernel(name="a", bytes_touched=300), kernel(name="b", bytes_touched=100))
    assert "75% of the bytes (estimated)" in dict(found.facts)["kernel a"]
    assert "25% of the bytes (estimated)" in dict(found.facts)["kernel b"]


def test_what_the_library_moves_is_no_kernels_share() -> None:
    cost = OpCost(op="aten.mm", dtype="float16", bytes_moved=700, flops=9, kind="matmul")
    report = CompileReport(
        target="90",
        kernels=(kernel(name="a", bytes_touched=300),),
        library_ops=("aten.mm",),
        library_costs=(cost,),
    )
    made = profile(candidate()).evolve(report=report)
    found = speed_evidence(made, analysis(roofline="compute"), H100)
    assert "30% of the bytes (estimated)" in dict(found.facts)["kernel a"]
    assert not any("no tensor cores" in item for item in found.findings)


def test_facts_of_another_measurement_ask_the_same_question() -> None:
    """A replay knows a question by what is left of it without its figures."""
    first = measurement(roofline=0.4)
    again = measurement(roofline=0.43, candidate_us=10.125).evolve(
        achieved_gb_per_s=2987.0, copy_gb_per_s=4311.5, achieved_tflops=0.51
    )
    assert outline(first) == outline(again)
    assert first != again


def outline(measured: Measurement) -> str:
    text = "\n".join(": ".join(item) for item in evidence(kernel(), measured=measured).facts)
    sampling = Sampling(temperature=0, max_tokens=1)
    message = Message(role="user", text=text)
    return ModelRequest(agent="coder", round=2, messages=(message,), sampling=sampling).outline("m")
