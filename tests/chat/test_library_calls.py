"""Is it said of a library's product what it runs on, as far as dtype, precision and GPU tell?"""

from __future__ import annotations

import pytest

from agentkernel.chat.facts import _tensor_cores
from agentkernel.chat.knobs import changed
from agentkernel.chat.launches import NoChange
from agentkernel.chat.library_calls import library_products
from agentkernel.chat.requests import SetKnob
from agentkernel.chat.tree import Node
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.profile import OpCost
from tests.workflows import fakes

SOURCE = "class ModelNew:\n    def forward(self, x):\n        return k[(1,)](x, num_warps=4)\n"
MM = OpCost(op="aten.mm", dtype="float16", bytes_moved=1000, flops=64_000, kind="matmul")
FP32 = MM.evolve(dtype="float32")
CONV = FP32.evolve(op="aten.convolution", kind="convolution")


def node(
    *costs: OpCost, target: str = "h100-sxm", precision: str = "strict", core: str | None = None
) -> Node:
    candidate = Candidate(source=SOURCE, coder="compiler", round=1)
    made = fakes.profile(candidate)
    assert made.report is not None
    kernel = fakes.resources().evolve(tensor_core=core)
    report = made.report.evolve(kernels=(kernel,), library_costs=costs)
    return Node(
        number=2,
        step=1,
        candidate=candidate,
        verdict=fakes.verdict(candidate).evolve(precision=precision),
        profile=made.evolve(report=report, target=target),
    )


@pytest.mark.parametrize(
    ("made", "cores", "words"),
    [
        (node(MM), True, "aten.mm, fp16: on tensor cores"),
        (node(MM.evolve(dtype="bfloat16")), True, "bf16: on tensor cores"),
        (node(MM, target="mi300x"), True, "fp16: on tensor cores"),
        (node(MM.evolve(flops=2000)), None, "the library chooses"),
        (node(MM.evolve(kind="convolution", channels=0)), None, "the library chooses"),
        (node(FP32), False, "fp32: in fp32 units, unless the process allows TF32"),
        (node(FP32, precision="tf32"), None, "where the process allows TF32"),
        (node(FP32, target="mi300x"), None, "the library chooses"),
        (node(CONV), None, "default allows TF32"),
        (node(FP32.evolve(kind="attention")), None, "the library chooses"),
        (node(FP32.evolve(dtype="float64")), None, "fp64: the library chooses"),
    ],
)
def test_what_a_product_runs_on(made: Node, cores: bool | None, words: str) -> None:
    (product,) = library_products(made)
    assert product.tensor_cores is cores
    assert words in product.words


def test_a_sum_of_the_library_is_no_product() -> None:
    assert library_products(node(MM.evolve(op="aten.sum", kind="reduction"))) == ()
    assert len(library_products(node(MM, MM))) == 1


@pytest.mark.parametrize(
    ("made", "starts", "also"),
    [
        (
            node(MM),
            "c2: yes. The product is the library's (aten.mm, fp16",
            "Of its own kernels, k uses none",
        ),
        (
            node(FP32),
            "c2: no. The product is the library's (aten.mm, fp32",
            "Of its own kernels, k uses none",
        ),
        (node(CONV), "c2: it depends.", "Of its own kernels, k uses none"),
        (node(core="mma"), "c2: yes. Of its own kernels, k uses them.", "k: "),
        (node(), "c2: no. Of its own kernels, k uses none.", "no tensor cores"),
        (node(FP32, core="wgmma"), "c2: yes.", "Of its own kernels, k uses them too"),
    ],
)
def test_tensor_cores_are_told_of_kernels_and_library(made: Node, starts: str, also: str) -> None:
    told = _tensor_cores(made).text
    assert told.startswith(starts)
    assert also in told


@pytest.mark.parametrize(
    ("made", "says", "instead"),
    [
        (node(MM), "which cannot be told so", "'use fp32 inputs'"),
        (node(CONV), "which cannot be told so", "'only your own kernels' and 'run'"),
        (node(FP32), "c2 uses no tensor cores. The product is the library's", "Nothing to change"),
        (node(), "c2 uses no tensor cores. Nothing to change.", ""),
    ],
)
def test_a_library_cannot_be_told_to_leave_tensor_cores(
    made: Node, says: str, instead: str
) -> None:
    with pytest.raises(NoChange) as caught:
        changed(SOURCE, made, SetKnob(knob="tensor_cores", value=0))
    assert says in str(caught.value)
    assert instead in str(caught.value)
    assert ("Nothing to change" in str(caught.value)) == ("uses no tensor cores." in says)


def test_a_library_that_uses_them_is_what_was_wished() -> None:
    with pytest.raises(NoChange, match=r"c2 uses tensor cores\. The product is the library's"):
        changed(SOURCE, node(MM), SetKnob(knob="tensor_cores", value=1))
    with pytest.raises(NoChange, match="c2 uses no tensor cores"):
        changed(SOURCE, node(FP32), SetKnob(knob="tensor_cores", value=1))
