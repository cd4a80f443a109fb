import pytest

from agentkernel.domain.plan import Analysis
from agentkernel.knowledge.documents import OP_PATTERNS, load_documents, op_name, patterns_of


def an_analysis(*ops: str, patterns: tuple[str, ...] = ()) -> Analysis:
    return Analysis(
        bytes_min=1,
        flops=1,
        op_counts=dict.fromkeys(ops, 1),
        roofline="memory",
        memory_time_us=1.0,
        compute_time_us=1.0,
        bound_us=1.0,
        patterns=patterns,
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten.layer_norm", "layer_norm"),
        ("aten.native_layer_norm.default", "layer_norm"),
        ("aten._softmax.default", "softmax"),
        ("aten._native_batch_norm_legit_no_training", "batch_norm"),
        ("mm", "mm"),
    ],
)
def test_op_name(name: str, expected: str) -> None:
    assert op_name(name) == expected


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        (("aten.layer_norm",), {"layernorm", "norm", "row_norm"}),
        (("aten.add", "aten.rms_norm"), {"rmsnorm", "residual"}),
        (("aten.pow", "aten.mean", "aten.rsqrt", "aten.mul"), {"rmsnorm"}),
        (("aten.linear", "aten.gelu"), {"gemm", "epilogue"}),
        (("aten.matmul", "aten.div", "aten.softmax"), {"attention"}),
        (("aten.silu", "aten.mul"), {"gated"}),
        (("aten.nonsense",), set()),
    ],
)
def test_patterns_of(ops: tuple[str, ...], expected: set[str]) -> None:
    assert expected <= set(patterns_of(an_analysis(*ops)))


def test_the_templates_names_come_first_and_none_comes_twice() -> None:
    found = patterns_of(an_analysis("aten.softmax", patterns=("row_softmax", "softmax")))
    assert found == ("row_softmax", "softmax")


def test_every_pattern_of_an_op_is_that_of_a_document() -> None:
    offered = {name for item in load_documents() for name in item.patterns}
    assert {name for names in OP_PATTERNS.values() for name in names} <= offered
