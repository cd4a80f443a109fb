import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from agentkernel.agents.retriever import (
    KnowledgeRetriever,
    apply_hints,
    as_retrieved,
    bears_on,
    main_dtype,
    query_text,
    winner_of,
)
from agentkernel.domain.knowledge import Entry, Score, Structure
from agentkernel.domain.plan import Analysis, Decision, Hypothesis, Plan, Retrieved, Won
from agentkernel.domain.problem import Problem, ScalarSpec, ShapeSet, TensorSpec
from agentkernel.domain.target import Sourced, Target
from agentkernel.knowledge.base import KnowledgeBase, open_base
from agentkernel.tools.problem.loading import LoadedProblem


def a_target(arch: str = "90") -> Target:
    one = Sourced(value=1.0, source="test", date="2026-11")
    names = (
        "sm_count clock_mhz dram_gb dram_gb_per_s l2_mb shared_kb_per_sm shared_kb_per_block "
        "registers_per_sm threads_per_sm blocks_per_sm tdp_w"
    )
    return Target(
        name="test", title="A test GPU", vendor="nvidia", arch=arch, warp_size=32,
        peak_tflops={"fp32": one}, **dict.fromkeys(names.split(), one),
    )  # fmt: skip


def an_analysis(*patterns: str, **ops: int) -> Analysis:
    return Analysis(
        bytes_min=1, flops=1, op_counts=ops or {"aten.mm.default": 1}, roofline="compute",
        memory_time_us=1.0, compute_time_us=1.0, bound_us=1.0, patterns=patterns,
    )  # fmt: skip


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
        id=name, title=name, kind="kernel", source="test", licence="test", score=score, text="",
        hints={key.replace("__", "."): value for key, value in hints.items()},
    )  # fmt: skip


GEMM = Structure(ops=("linear",), reduction="contraction", dtypes=("float32",), rank=2)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KnowledgeBase]:
    """For tests that change nothing in it."""
    with open_base(tmp_path_factory.mktemp("knowledge")) as opened:
        opened.refresh()
        yield opened


@pytest.fixture
def own_base(tmp_path: Path) -> Iterator[KnowledgeBase]:
    with open_base(tmp_path) as opened:
        opened.refresh()
        yield opened


def a_retriever(
    base: KnowledgeBase, limit: int = 6, *, experience: bool = False
) -> KnowledgeRetriever:
    return KnowledgeRetriever(base, lambda analysis: GEMM, limit, experience)


def won(family: str = "hopper") -> Won:
    return Won(
        strategy="gemm", coder="compiler", label="k BLOCK_N=64", family=family, shapes=((4, 8),),
        measured=False,
    )  # fmt: skip


def experience(name: str, structure: Structure = GEMM, family: str = "hopper") -> Entry:
    return Entry(
        id=f"experience/{name}", kind="experience", title="a linear layer",
        problem="class Model: ...", answer=f"class ModelNew: '{name}'", passages=("linear",),
        source="run 1", licence="not stated", verified="gpu", structure=structure,
        architectures=(family,), hints={"experience": won(family).model_dump_json()},
        failures=("library: slower",),
    )  # fmt: skip


def test_what_is_retrieved_fits_the_problem_and_the_target(base: KnowledgeBase) -> None:
    found = a_retriever(base, 5).retrieve(
        a_problem(), an_analysis(**{"aten.linear": 1}), a_target()
    )
    assert len(found) == 5
    assert found[0].id.startswith("kernels/gemm_")
    assert "notes/hopper" in [item.id for item in found]


def test_a_hit_says_where_it_comes_from_and_why_it_is_there(base: KnowledgeBase) -> None:
    first = a_retriever(base).retrieve(a_problem(), an_analysis("gemm"), a_target())[0]
    entry = base.get(first.id)
    assert (first.kind, first.source, first.licence) == ("kernel", entry.source, "Apache-2.0")
    assert first.verified == "interpreter"
    assert set(first.ranks) <= {"dense", "lexical", "structural"}
    assert first.ranks["structural"] >= 1
    assert first.similarity is not None
    assert 0 < first.similarity <= 1


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("arch", "note"),
    [
        ("80", "notes/ampere"),
        ("89", "notes/ada"),
        ("90", "notes/hopper"),
        ("100", "notes/blackwell"),
        ("120", "notes/blackwell"),
        ("gfx942", "notes/cdna3"),
    ],
)
def test_the_architectures_note_is_always_among_the_results(
    base: KnowledgeBase, arch: str, note: str
) -> None:
    for limit in (1, 4):
        found = a_retriever(base, limit).retrieve(a_problem(), an_analysis("loss"), a_target(arch))
        assert len(found) == limit
        assert note in [item.id for item in found]


def test_nothing_is_retrieved_where_nothing_is_wanted(base: KnowledgeBase) -> None:
    assert a_retriever(base, 0).retrieve(a_problem(), an_analysis(), a_target()) == ()


def test_fixes_are_the_debuggers(base: KnowledgeBase) -> None:
    found = a_retriever(base, 40).retrieve(a_problem(), an_analysis("gemm"), a_target())
    assert {item.kind for item in found} == {"kernel", "note"}


def test_experience_comes_first_where_it_is_wanted(own_base: KnowledgeBase) -> None:
    own_base.remember(experience("a"))
    found = a_retriever(own_base, experience=True).retrieve(a_problem(), an_analysis(), a_target())
    assert found[0].id == "experience/a"
    assert found[0].won == won()
    assert (found[0].hints, found[0].similarity) == ({}, 1.0)
    assert "class Model: ..." in found[0].text
    assert "library: slower" in found[0].text
    without = a_retriever(own_base).retrieve(a_problem(), an_analysis(), a_target())
    assert "experience" not in {item.kind for item in without}


def test_experience_that_was_not_verified_takes_no_place(own_base: KnowledgeBase) -> None:
    own_base.remember(experience("a").evolve(verified="no"))
    found = a_retriever(own_base, experience=True).retrieve(a_problem(), an_analysis(), a_target())
    assert "experience" not in {item.kind for item in found}


def test_experience_of_another_family_is_not_found(own_base: KnowledgeBase) -> None:
    own_base.remember(experience("a", family="ada"))
    found = a_retriever(own_base, experience=True).retrieve(a_problem(), an_analysis(), a_target())
    assert "experience" not in {item.kind for item in found}


def test_figures_that_cannot_be_read_are_none() -> None:
    entry = experience("a")
    assert winner_of(entry) == won()
    assert winner_of(entry.evolve(hints={"experience": "{"})) is None
    assert winner_of(entry.evolve(hints={})) is None
    assert winner_of(entry.evolve(kind="pair")) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("shapes", [[10**400, 8192]]),
        ("shapes", [[2**64, 8192]]),
        ("shapes", [[-1]]),
        ("schedule", {"k": {"BLOCK": 10**400}}),
        ("schedule", {"k": {"BLOCK": 2**63}}),
        ("tried", 10**400),
        ("lost", {"split": float("nan")}),
        ("lost", {"split": -1.0}),
        ("roofline", float("inf")),
        ("label", "x" * 2**16),
    ],
    ids=lambda value: str(value)[:24],
)
def test_absurd_figures_are_none_and_advise_nothing(field: str, value: object) -> None:
    text = json.dumps(won().model_dump() | {field: value})
    entry = experience("a").evolve(hints={"experience": text})
    assert winner_of(entry) is None
    found = as_retrieved(entry, Score(fused=1.0), "hopper", "float32")
    assert found.hints == {}
    JsonPlusSerializer().dumps_typed(found)


def test_advice_that_no_schedule_can_follow_is_left_out() -> None:
    hints = {"row.num_warps": "8", "row.loop_block": "0", "row.loop_warps": "--5"}
    hints |= {"pointwise.block": "9" * 5000, "precision": "bf16", "focus": "x"}
    entry = experience("a").evolve(kind="kernel", hints=hints)
    found = as_retrieved(entry, Score(fused=1.0), "hopper", "float32")
    assert found.hints == {"row.num_warps": "8"}


def test_removing_the_document_changes_the_recorded_decision(own_base: KnowledgeBase) -> None:
    retriever = a_retriever(own_base)

    def planned() -> Plan:
        found = retriever.retrieve(a_problem(), an_analysis("gemm"), a_target())
        return apply_hints(a_plan(), found)

    before = planned()
    decision = next(item for item in before.decisions if item.key == "gemm.fp32.tile")
    assert decision.value == "128x128x64"
    assert decision.because in before.retrieved
    while (rests_on := [item for item in planned().decisions if item.key == decision.key]) != []:
        own_base.truth.remove(rests_on[0].because, "a test")
    after = planned()
    assert after.decision("gemm.fp32.tile") is None
    assert decision.because not in after.retrieved
    assert before != after


def test_the_target_and_the_dtype_decide_which_hints_hold(base: KnowledgeBase) -> None:
    retriever = a_retriever(base)

    def tile(arch: str, dtype: str = "float32") -> str | None:
        found = retriever.retrieve(a_problem(dtype), an_analysis("gemm"), a_target(arch))
        return apply_hints(a_plan(), found).decision("gemm.fp32.tile")

    assert tile("90") == "128x128x64"
    assert tile("89") == "128x64x32"
    assert tile("90", "bfloat16") is None


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
