from pathlib import Path

import pytest

from agentkernel.agents.retriever import (
    KnowledgeRetriever,
    apply_hints,
    bears_on,
    main_dtype,
    query_text,
)
from agentkernel.domain.plan import Analysis, Decision, Hypothesis, Plan, Retrieved
from agentkernel.domain.problem import Problem, ScalarSpec, ShapeSet, TensorSpec
from agentkernel.domain.target import Sourced, Target
from agentkernel.knowledge.store import open_index
from agentkernel.tools.problems import LoadedProblem


def a_target(arch: str = "90") -> Target:
    one = Sourced(value=1.0, source="test", date="2026-11")
    names = (
        "sm_count clock_mhz dram_gb dram_gb_per_s l2_mb shared_kb_per_sm shared_kb_per_block "
        "registers_per_sm threads_per_sm blocks_per_sm tdp_w"
    )
    return Target(
        name="test",
        title="A test GPU",
        vendor="nvidia",
        arch=arch,
        warp_size=32,
        peak_tflops={"fp32": one},
        **dict.fromkeys(names.split(), one),
    )


def an_analysis(*patterns: str, **ops: int) -> Analysis:
    return Analysis(
        bytes_min=1,
        flops=1,
        op_counts=ops or {"aten.mm.default": 1},
        roofline="compute",
        memory_time_us=1.0,
        compute_time_us=1.0,
        bound_us=1.0,
        patterns=patterns,
    )


def a_problem(dtype: str = "float32") -> LoadedProblem:
    from torch import nn

    spec = TensorSpec.model_validate({"name": "x", "dtype": dtype, "shape": (4, 8)})
    sets = (ShapeSet(inputs=(ScalarSpec(name="k", literal="2"), spec)),)
    problem = Problem(
        name="p", origin="file", path="p.py", source="", class_name="Model", shape_sets=sets
    )
    return LoadedProblem(problem, nn.Identity)


def a_plan(*decisions: Decision, patterns: tuple[str, ...] = ("gemm",)) -> Plan:
    return Plan(
        analysis=an_analysis(*patterns),
        hypotheses=(Hypothesis(strategy="s", reason="r"),),
        decisions=decisions,
    )


def a_document(name: str, score: float, **hints: str) -> Retrieved:
    return Retrieved(
        id=name,
        title=name,
        kind="kernel",
        source="test",
        licence="test",
        score=score,
        text="",
        hints={key.replace("__", "."): value for key, value in hints.items()},
    )


def test_what_is_retrieved_fits_the_problem_and_the_target(tmp_path: Path) -> None:
    retriever = KnowledgeRetriever(open_index(tmp_path), limit=5)
    found = retriever.retrieve(a_problem(), an_analysis(**{"aten.linear": 1}), a_target())
    assert len(found) == 5
    assert found[0].id == "kernels/gemm_fp32"
    assert "notes/hopper" in [item.id for item in found]


def test_removing_the_document_changes_the_recorded_decision(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    retriever = KnowledgeRetriever(index)

    def planned() -> Plan:
        found = retriever.retrieve(a_problem(), an_analysis("gemm"), a_target())
        return apply_hints(a_plan(), found)

    before = planned()
    decision = next(item for item in before.decisions if item.key == "gemm.fp32.tile")
    assert decision.value == "128x128x64"
    assert decision.because in before.retrieved
    while (rests_on := [item for item in planned().decisions if item.key == decision.key]) != []:
        index.remove(rests_on[0].because)
    after = planned()
    assert after.decision("gemm.fp32.tile") is None
    assert decision.because not in after.retrieved
    assert before != after


def test_the_target_decides_which_hints_hold(tmp_path: Path) -> None:
    retriever = KnowledgeRetriever(open_index(tmp_path))

    def tile(arch: str) -> str | None:
        found = retriever.retrieve(a_problem(), an_analysis("gemm"), a_target(arch))
        return apply_hints(a_plan(), found).decision("gemm.fp32.tile")

    assert tile("90") == "128x128x64"
    assert tile("89") == "128x64x32"


def test_the_highest_score_speaks_first() -> None:
    found = (
        a_document("low", 0.1, row__num_warps="4"),
        a_document("high", 0.9, row__num_warps="8"),
    )
    plan = apply_hints(a_plan(patterns=("row_norm",)), found)
    assert plan.decisions == (
        Decision(key="row.num_warps", value="8", default="auto", because="high"),
    )
    assert plan.retrieved == ("low", "high")


def test_a_default_is_replaced_and_kept_on_record() -> None:
    plan = a_plan(Decision(key="gemm.order", value="rows", default="rows", because="default"))
    changed = apply_hints(plan, (a_document("d", 1.0, gemm__order="groups"),))
    assert changed.decisions == (
        Decision(key="gemm.order", value="groups", default="rows", because="d"),
    )


def test_a_rule_is_not_overruled() -> None:
    rule = Decision(key="gemm.order", value="rows", default="rows", because="goals")
    assert apply_hints(a_plan(rule), (a_document("d", 1.0, gemm__order="x"),)).decisions == (rule,)


def test_hints_for_other_patterns_are_left_out() -> None:
    plan = apply_hints(a_plan(), (a_document("d", 1.0, row__num_warps="8", gemm__tile="1"),))
    assert [item.key for item in plan.decisions] == ["gemm.tile"]


@pytest.mark.parametrize(
    ("key", "patterns", "expected"),
    [
        ("gemm.fp32.tile", ("matmul",), True),
        ("gemm.fp32.tile", ("row_softmax",), False),
        ("row.num_warps", ("row_softmax",), True),
        ("row.num_warps", ("layernorm",), True),
        ("pointwise.num_warps", ("gemm",), False),
        ("precision", ("gemm",), True),
    ],
)
def test_bears_on(key: str, patterns: tuple[str, ...], expected: bool) -> None:
    assert bears_on(key, patterns) is expected


def test_the_query_names_patterns_and_ops() -> None:
    analysis = an_analysis(
        "row_norm", **{"aten.mul.Tensor": 1, "aten.native_layer_norm.default": 3}
    )
    assert query_text(analysis) == ("row norm norm layernorm pointwise layer norm mul")


def test_main_dtype() -> None:
    assert main_dtype(a_problem("bfloat16").problem) == "bfloat16"
    assert main_dtype(a_problem("int64").problem) == ""
