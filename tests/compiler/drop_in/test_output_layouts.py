"""Outputs lie in memory as eager's do, for the example's layout and the usual one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from agentkernel.compiler.drop_in.interface import in_order_text, output_layouts
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.families import OfOne
from tests.compiler.forms import accepted_text

Function = Callable[[torch.Tensor], torch.Tensor]
FUNCTIONS: dict[str, Function] = {
    "follows": lambda x: torch.relu(x) + 1.0,
    "turned": lambda x: x.permute(0, 2, 3, 1) * 2.0,
    "reflected": lambda x: nn.functional.pad(x, (1, 2, 1, 1), mode="reflect").tanh(),
    "replicated": lambda x: nn.functional.pad(x, (1, 2, 1, 1), mode="replicate").tanh(),
    "several": lambda x: (x.permute(0, 2, 3, 1).exp(), torch.relu(x)),  # type: ignore[dict-item]
}


def channels_last() -> torch.Tensor:
    return torch.randn(3, 5, 4, 6).contiguous(memory_format=torch.channels_last)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name == "replicated"))  # as `reflected`
        for name in sorted(FUNCTIONS)
    ],
)
def test_outputs_lie_as_eager_has_them_for_either_layout(name: str) -> None:
    loaded = problem_from_module(OfOne(FUNCTIONS[name]).eval(), (channels_last(),))
    assert "usual_layout = x.is_contiguous()" in accepted_text(loaded)


def test_nothing_is_turned_for_contiguous_inputs_or_outputs_that_stay() -> None:
    loaded = problem_from_module(OfOne(torch.relu), (torch.randn(3, 5, 4, 6),))
    assert not output_layouts(loaded, capture(loaded)).orders
    loaded = problem_from_module(OfOne(lambda x: x.mean((2, 3))), (channels_last(),))
    assert not output_layouts(loaded, capture(loaded)).orders


def test_an_order_is_said_as_briefly_as_torch_can() -> None:
    value = torch.randn(2, 3, 4, 5)
    for order in ((0, 1, 2, 3), (0, 3, 1, 2), (2, 0, 3, 1)):
        made = eval(in_order_text("value", order), {"value": value})
        torch.testing.assert_close(made, value)
        assert made.permute(order).is_contiguous()
    assert in_order_text("value", (0, 1, 2, 3)) == "value.contiguous()"


class Read(nn.Module):
    """What is returned in eager's order is read by other kernels, whole and place by place."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 5))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        turned = torch.exp(x.transpose(1, 2))
        state = torch.softmax(turned[:, 1] @ self.weight + turned[:, 2], -1)
        return state.unsqueeze(1) * (turned @ self.weight).tanh(), turned


def test_what_is_returned_turned_is_read_as_it_is() -> None:
    accepted_text(problem_from_module(Read().eval(), (torch.randn(4, 5, 7),)))
