"""A linear layer of every place along a dimension is one of the whole, and no other is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.products.pairs import PairStep
from agentkernel.compiler.products.step import ProductStep
from agentkernel.compiler.rewrite.places import with_places_together
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.forms import assert_accepted, small

Read = Callable[[torch.Tensor], list[torch.Tensor]]


class Layers(nn.Module):
    """The sum of one layer's results for what `read` takes of the input."""

    def __init__(self, read: Read) -> None:
        super().__init__()
        self.layer, self.read = nn.Linear(24, 16), read

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(())
        for step, item in enumerate(self.read(x)):
            total = torch.tanh(total + self.layer(item) * (step + 1))
        return total


def linear_calls(captured: Captured) -> int:
    return sum("linear" in str(node.target) for node in captured.graph.graph.nodes)


def captured_of(module: nn.Module, x: torch.Tensor) -> Captured:
    return capture(problem_from_module(module.eval(), (x,)))


ALL: dict[str, Read] = {
    "in order": lambda x: [x[:, t] for t in range(x.shape[1])],
    "backwards": lambda x: [x[:, t] for t in reversed(range(x.shape[1]))],
    "from the end": lambda x: [x[:, t - x.shape[1]] for t in range(x.shape[1])],
    "unbind": lambda x: list(x.unbind(1)),
    "twice": lambda x: [x[:, t % x.shape[1]] for t in range(2 * x.shape[1])],
}
OTHERS: dict[str, Read] = {
    "all but one": lambda x: [x[:, t] for t in range(x.shape[1] - 1)],
    "ranges": lambda x: [x[:, t : t + 1] for t in range(x.shape[1])],
    "one": lambda x: [x[:, 0]],
    "other tensors": lambda x: [(x * t)[:, t] for t in range(x.shape[1])],
}


@pytest.mark.parametrize("name", ALL)
def test_every_place_is_one_call(name: str) -> None:
    torch.manual_seed(0)
    module, x = Layers(ALL[name]).eval(), torch.randn(3, 4, 24)
    before = captured_of(module, x)
    after = with_places_together(before)
    assert linear_calls(before) >= 4
    assert linear_calls(after) == 1
    state = [module.layer.weight, module.layer.bias]
    found = after.graph(*state, x)
    assert torch.allclose(found[0] if isinstance(found, tuple) else found, module(x), atol=1e-6)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_all_of_one_tensor_stays(name: str) -> None:
    captured = captured_of(Layers(OTHERS[name]), torch.randn(3, 4, 24))
    assert with_places_together(captured) is captured


class LongShort(nn.Module):
    """An LSTM written out, its inputs' layer within the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(24, 64), nn.Linear(16, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = x.new_zeros(x.shape[0], 16)
        for step in range(x.shape[1]):
            i, f, g, o = (self.x(x[:, step]) + self.h(h)).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h


def test_the_steps_of_an_lstm_are_a_launch_each() -> None:
    problem = problem_from_module(LongShort().eval(), (torch.randn(3, 5, 24),))
    compiled = partitions(problem, capture(problem), "triton")[0]
    kinds = [type(step) for step in compiled.partition.steps]
    assert kinds.count(PairStep) == 5
    assert kinds.count(ProductStep) == 1
    text = compiled.write(small(compiled, "looped")).text
    assert text.count("fourth = tl.dot") <= 3


@pytest.mark.slow
def test_the_judge_accepts_an_lstm_written_out() -> None:
    problem = problem_from_module(LongShort().eval(), (torch.randn(3, 3, 24),))
    captured = capture(problem)
    compiled = partitions(problem, captured, "triton")[0]
    text = compiled.write(small(compiled, "looped")).text
    assert_accepted(problem, captured, text)
