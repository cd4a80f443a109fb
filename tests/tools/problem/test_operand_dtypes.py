"""What eager refuses for its dtypes is refused before anything is drafted, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from agentkernel.domain.errors import ProblemError
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module

Forward = Callable[..., torch.Tensor]
LINES: dict[str, Forward] = {
    "linear": lambda x, y: F.linear(x, y),
    "bias": lambda x, y: F.linear(y, y, x[0]),
    "matmul": lambda x, y: x @ y,
    "bmm": lambda x, y: torch.bmm(x[None], y[None]),
    "addmm": lambda x, y: torch.addmm(x, y, y),
    "conv": lambda x, y: F.conv1d(x[None], y[:, :, None]),
    "conv_transpose": lambda x, y: F.conv_transpose1d(x[None], y[:, :, None]),
    "attention": lambda x, y: F.scaled_dot_product_attention(x[None, None], y[None, None], y),
    "einsum": lambda x, y: torch.einsum("ab,bc->ac", x, y),
    "add": lambda x, y: x + y,
    "layer_norm": lambda x, y: F.layer_norm(x, (4,), y[0], y[0]),
    "mask": lambda x, y: F.scaled_dot_product_attention(y[None], y[None], y[None], x > 0),
    "cast": lambda x, y: x.float() @ y,
    "embedding": lambda x, y: F.embedding(x.long(), y),
}


class Line(nn.Module):
    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self._line = forward

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self._line(x, y)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", LINES)
def test_a_forward_is_refused_exactly_where_eager_refuses_it(name: str, dtype: torch.dtype) -> None:
    inputs = [torch.ones(4, 4, dtype=dtype), torch.ones(4, 4)]
    module = Line(LINES[name])
    try:
        module(*inputs)
    except RuntimeError:
        with pytest.raises(ProblemError):
            capture(problem_from_module(module, inputs))
        assert dtype is torch.bfloat16
    else:
        capture(problem_from_module(module, inputs))


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1 = nn.Linear(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.w1(x))


def test_the_line_says_what_eager_says() -> None:
    problem = problem_from_module(Head(), [torch.ones(2, 4, dtype=torch.bfloat16)])
    with pytest.raises(ProblemError) as raised:
        capture(problem)
    said = str(raised.value)
    assert said.startswith("The forward of Head raised RuntimeError: ")
    assert "dtype" in said
    assert "x bfloat16[2, 4]" in said
    assert said.endswith("Next: check shapes and dtypes against the constructor.")


class Autocast(Head):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.relu(self.w1(x))


def test_under_autocast_operands_may_differ() -> None:
    module, x = Autocast(), torch.ones(2, 4, dtype=torch.bfloat16)
    module(x)
    capture(problem_from_module(module, [x]))
