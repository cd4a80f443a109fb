"""What a module's graph calls and computes, and what calls of a library leave of it."""

import pytest
import torch

from agentkernel.tools.judge.execution.graph_operators import graph_operators, library_kinds
from agentkernel.tools.judge.policy.families import (
    GraphOperators,
    Work,
    family,
    left_over,
    library_kind,
    parts,
)
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import load_problem

MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        y = self.norm(self.linear(x)).view(-1, 2, 4).transpose(1, 2)
        return BODY


def get_inputs():
    return [torch.randn(12, 16)]
"""


@pytest.fixture
def operators_of(tmp_path):
    def read(body, sized=False):
        file = tmp_path / "problem.py"
        file.write_text(MODEL.replace("BODY", body))
        loaded = load_problem(str(file))
        inputs = loaded.problem.shape_sets[0] if sized else None
        return graph_operators(capture(loaded), inputs)

    return read


def test_calls_are_counted_by_family_and_sized_by_their_operands(operators_of):
    found = operators_of("torch.sort(y).values.sort().values", sized=True)
    assert found.calls["sort"] == Work(2, 2 * 96)
    assert found.calls["layer_norm"] == Work(1, 96 + 2 * 8)
    assert found.computes == {"product": 1, "add": 1, "layer_norm": 1, "sort": 2}
    assert found.library == {"product", "convolution"}
    assert operators_of("torch.sort(y).values").calls["sort"] == Work(1, None)


def test_a_composed_operator_is_what_it_is_made_of(operators_of):
    found = operators_of("nn.functional.cross_entropy(y[:, 0], y[:, 0].argmax(-1))")
    assert found.calls["cross_entropy_loss"].calls == found.calls["nll_loss"].calls == 1
    assert found.computes["log_softmax"] == found.computes["nll_loss"] == 1


def test_masks_of_sizes_and_the_scale_of_a_loss_are_no_work(operators_of):
    found = operators_of("(y.sum() * 0.5, torch.triu(torch.ones(4, 4)) * 1.0)")
    assert found.computes == {"product": 1, "add": 1, "layer_norm": 1, "sum": 1}


def test_where_nothing_is_computed_nothing_can_be_covered(operators_of):
    copied = operators_of("x.transpose(0, 1).contiguous().to(torch.float64)")
    assert copied.computes == {}
    assert not copied.covered_by([("product",)])


@pytest.mark.parametrize(
    ("called", "words"),
    [
        ({"sort": Work(1, 100)}, ""),
        ({"sort": Work(1, None)}, ""),
        ({"sort": Work(2, 50)}, "called 2 times"),
        ({"sort": Work(1, 101)}, "101 elements"),
        ({"cumsum": Work(1, 1)}, "does not call"),
    ],
)
def test_as_often_and_as_large_as_the_original_and_no_more(called, words):
    refusal = GraphOperators(calls={"sort": Work(1, 100)}).refusal(called)
    assert words in refusal
    assert bool(words) == bool(refusal)


@pytest.mark.parametrize(
    ("wanted", "calls", "left"),
    [
        ({"product": 1, "add": 1}, [("mm", ())], {"add": 1}),
        ({"product": 1, "add": 1}, [("linear", ("bias",))], {}),
        ({"product": 1, "add": 1}, [("addmm", ())], {}),
        ({"product": 1, "mul": 1}, [("addmm", ("scale",))], {}),
        ({"product": 1, "add": 1, "gelu": 1}, [("_addmm_activation", ())], {}),
        ({"product": 1, "add": 2, "relu": 1}, [("cudnn_convolution_add_relu", ())], {}),
        ({"product": 2, "softmax": 1, "div": 1}, [("_scaled_dot_product_flash_attention", ())], {}),
        (
            {"product": 2, "softmax": 1, "div": 1, "add": 1},
            [("scaled_dot_product_attention", ())],
            {"add": 1},
        ),
        (
            {"product": 2, "softmax": 1, "mul": 1, "masked_fill": 1, "add": 1},
            [("scaled_dot_product_attention", ("mask",))],
            {"add": 1},
        ),
        ({"attention": 2}, [("scaled_dot_product_attention", ())], {"attention": 1}),
        ({"product": 1, "sum": 1}, [("linear", ()), ("matmul", ())], {}),
        ({"product": 1, "avg_pool2d": 1}, [("conv2d", ()), ("conv2d", ())], {}),
        ({"product": 2, "sum": 1}, [("linear", ()), ("matmul", ())], {"sum": 1}),
        ({"layer_norm": 1, "sort": 1}, [("native_layer_norm", ()), ("sort", ())], {}),
        ({"sort": 2}, [("sort", ()), ("topk", ())], {"sort": 1}),
    ],
)
def test_what_calls_of_a_library_leave(wanted, calls, left):
    assert left_over(wanted, [parts(name, given) for name, given in calls]) == left


def test_an_operator_has_the_name_that_the_graph_has_for_it():
    assert family("aten::sort") == family("argsort") == "sort"
    assert family("relu_") == "relu"
    assert family("_native_batch_norm_legit_no_training") == "batch_norm"
    assert family("__and__") == "__and__"


def attended(x):
    return torch.softmax(x @ x.mT, -1) @ x


@pytest.mark.parametrize(
    ("work", "kinds"),
    [
        (lambda x: x.sum(-1), set()),
        (lambda x: (x * x).mean(-1), set()),
        (lambda x: torch.softmax(x[: x.shape[0]], -1), set()),
        (lambda x: (x[:, None] * x[None]).sum(-1), {"product", "convolution"}),
        (lambda x: torch.cdist(x, x), {"product", "convolution"}),
        (lambda x: torch.softmax(x @ x.mT, -1), {"product", "convolution"}),
        (attended, {"product", "convolution", "attention"}),
        (lambda x: torch.nn.functional.conv1d(x, x[:, :, None]), {"product", "convolution"}),
        (
            lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x),
            {"product", "attention"},
        ),
    ],
)
def test_a_library_is_free_for_what_the_original_has(work, kinds):
    class Model(torch.nn.Module):
        def forward(self, x):
            return work(x)

    exported = torch.export.export(Model(), (torch.randn(8, 8),))
    assert library_kinds(exported.graph) == kinds


def test_what_kind_a_library_operator_is():
    assert library_kind("mkldnn_convolution") == "convolution"
    assert library_kind("_scaled_dot_product_flash_attention_for_cpu") == "attention"
    assert library_kind("addmm") == "product"
