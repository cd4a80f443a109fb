"""Products of one input split it into planes once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.products.pairs import PairStep
from agentkernel.compiler.products.step import ProductStep
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.forms import TILE
from tests.compiler.sandboxed_drop_in import Sandboxed, sandboxed


class Heads(nn.Module):
    """Queries, keys and values of one input, and a product of another."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(40, wide) for wide in (56, 24, 24))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.relu(self.q(x)), self.k(x), self.v(x), self.k(y)


class Gated(nn.Module):
    """A gate and a third layer of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Linear(40, 56) for _ in range(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.sigmoid(self.one(x)) * self.two(x), self.three(x)


class Both(nn.Module):
    """x with itself, and its rows by its columns: one matrix that lies in two ways."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x @ x, x @ x.mT, torch.relu(x.mT @ x)


CASES = {
    "heads": (Heads(), [(33, 40), (33, 40)], 5),  # x and y, three weights
    "gated": (Gated(), [(2, 17, 40)], 4),
    "both": (Both(), [(3, 40, 40)], 2),
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandboxed]:
    with sandboxed() as worker:
        yield worker


@pytest.mark.parametrize("name", sorted(CASES))
def test_what_several_products_read_is_split_once(name: str, sandbox: Sandboxed) -> None:
    torch.manual_seed(0)
    module, shapes, splits = CASES[name]
    inputs = [torch.randn(shape) for shape in shapes]
    problem = problem_from_module(module.eval(), inputs)
    compiled = partitions(problem, capture(problem), "triton")[0]
    steps = compiled.partition.steps
    assert all(isinstance(step, ProductStep | PairStep) for step in steps)
    text = compiled.write(dict.fromkeys(steps, TILE | {"PLANES": 1})).text
    assert text.count("_planes = torch.empty(") == splits, text
    sandbox.check(text, module, inputs)
