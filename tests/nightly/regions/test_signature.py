"""Is a signature that of the graph on its shapes, and of nothing else?"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from agentkernel.domain.errors import ProblemError
from agentkernel.tools.problem.call_arguments import bind_call, flat_module
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.graph_identity import random_op, sign_graph
from agentkernel.tools.problem.loading import problem_from_module
from tests.nightly.regions.region_models import WIDTH, Mlp


def signed(module, *inputs):
    module = module.eval()
    bound = bind_call(module, inputs, {})
    problem = problem_from_module(flat_module(module, bound), bound.inputs)
    return sign_graph(capture(problem), module, bound)


def signature(module, *inputs):
    return signed(module, *inputs).signature


class Scaled(nn.Module):
    """x * first + second, by names and in an order that may differ."""

    def __init__(self, first="a", second="b", backwards=False, unused=False):
        super().__init__()
        self.first, self.second = first, second
        for name in (second, first) if backwards else (first, second):
            self.register_parameter(name, nn.Parameter(torch.randn(WIDTH)))
        if unused:
            self.spare = nn.Parameter(torch.randn(3))

    def forward(self, x):
        return x * getattr(self, self.first) + getattr(self, self.second)


class Op(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


X = torch.randn(2, 4, WIDTH)


@settings(max_examples=3, deadline=None)
@given(
    names=st.lists(
        st.sampled_from(["w", "weight", "beta", "k0", "zz"]), min_size=2, max_size=2, unique=True
    ),
    backwards=st.booleans(),
)
def test_names_values_and_the_order_of_definition_do_not_count(names, backwards):
    found = signed(Scaled(*names, backwards=backwards), X * 3)
    assert found.signature == signature(Scaled(), X)
    assert found.parameters == tuple(names)


def test_it_is_sixteen_hex_digits_and_says_what_it_stands_for():
    found = signed(Scaled(), X)
    assert len(found.signature) == 16
    assert int(found.signature, 16) >= 0
    assert found.ops == ("aten.mul", "aten.add")
    assert found.text.splitlines() == [
        "input 0: float32[2,4,16]:64,16,1",
        "n0 = aten.mul.Tensor(i0, p0) -> float32[2,4,16]:64,16,1",
        "n1 = aten.add.Tensor(n0, p1) -> float32[2,4,16]:64,16,1",
        "return n1 as *",
        "p0: float32[16]:1",
        "p1: float32[16]:1",
    ]


def test_a_wrapper_around_it_does_not_count():
    assert signature(nn.Sequential(Mlp()), X) == signature(Mlp(), X)
    assert signed(nn.Sequential(Mlp()), X).parameters[0] == "0.norm.weight"


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (Mlp(eps=1e-6), (X,)),
        (Mlp(), (torch.randn(2, 5, WIDTH),)),
        (Mlp(), (X.transpose(0, 1).contiguous().transpose(0, 1),)),
        (Mlp().to(torch.bfloat16), (X.to(torch.bfloat16),)),
        (Mlp(), (X, 1.0)),
        (Mlp(), (X, 2.0)),
    ],
    ids=["eps", "shape", "stride", "dtype", "arity", "scalar"],
)
def test_constants_shapes_strides_and_dtypes_count(module, inputs):
    assert signature(module, *inputs) != signature(Mlp(), X)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x.softmax(1), lambda x: x.softmax(2)),
        (torch.relu, torch.sigmoid),
        (lambda x: x - 2, lambda x: x - 2.0),
        (lambda x: x - x.exp(), lambda x: x.exp() - x),
        (lambda x: (x + 1, None), lambda x: (None, x + 1)),
        (lambda x: (x + 1,), lambda x: x + 1),
        (lambda x: x.view(8, -1) + 1, lambda x: x.view(4, -1) + 1),
    ],
    ids=["dim", "op", "type", "operands", "outputs", "structure", "sizes"],
)
def test_ops_and_their_operands_count(one, other):
    assert signature(Op(one), X) != signature(Op(other), X)


def test_an_op_whose_result_goes_nowhere_does_not_count():
    def wasteful(x):
        x.exp()
        return x + 1

    assert signature(Op(wasteful), X) == signature(Op(lambda x: x + 1), X)


def test_sizes_are_those_of_the_call():
    def flat(x):
        return x.view(x.shape[0] * x.shape[1], -1) + 1

    assert "[8, -1]" in signed(Op(flat), X).text
    assert "s0" not in signed(Op(flat), X).text


class Constant(nn.Module):
    def __init__(self, value, how):
        super().__init__()
        if how == "plain":
            self.c = torch.full((WIDTH,), value)
        else:
            self.register_buffer("c", torch.full((WIDTH,), value), persistent=how == "state")

    def forward(self, x):
        return x * self.c


@pytest.mark.quick(1)
@pytest.mark.parametrize(("how", "counts"), [("plain", True), ("none", True), ("state", False)])
def test_values_count_where_the_state_dict_lacks_them(how, counts):
    one, two = signed(Constant(1.0, how), X), signed(Constant(2.0, how), X)
    assert (one.signature != two.signature) is counts
    assert one.parameters == (() if counts else ("c",))


def test_a_parameter_that_is_not_used_comes_last_and_counts():
    found = signed(Scaled(unused=True), X)
    assert found.parameters == ("a", "b", "spare")
    assert found.signature != signature(Scaled(), X)


def test_tied_parameters_count():
    class Tied(nn.Module):
        def __init__(self, tied):
            super().__init__()
            self.a = nn.Parameter(torch.ones(WIDTH))
            self.b = self.a if tied else nn.Parameter(torch.ones(WIDTH))

        def forward(self, x):
            return x * self.a + self.b

    assert signature(Tied(True), X) != signature(Tied(False), X)


def test_a_tensor_made_in_forward_has_no_name():
    module = Op(lambda x: x * torch.tensor([1.0, 2.0] * 8))
    module.plain = torch.ones(1)
    with pytest.raises(ProblemError, match="out of nothing"):
        signed(module, X)


def test_random_ops_are_named_and_dropout_in_eval_is_none():
    def drawn(module):
        return random_op(capture(problem_from_module(module.eval(), (X,))))

    assert drawn(Op(torch.rand_like)) == "aten.rand_like"
    assert drawn(nn.Dropout(0.5)) is None
    attention = Op(lambda x: nn.functional.scaled_dot_product_attention(x, x, x))
    assert drawn(attention) is None
    noisy = Op(lambda x: nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5))
    assert drawn(noisy) == "aten.scaled_dot_product_attention"
