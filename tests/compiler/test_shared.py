"""Outputs that lie in the memory of an input or of another output."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from agentkernel.compiler.drop_in.interface import with_output_views
from agentkernel.compiler.drop_in.wrapper import return_text
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import problem_from_module

Returned = Callable[[torch.Tensor, torch.Tensor], object]
RETURNED: dict[str, Returned] = {
    "input": lambda x, y: (x, y),
    "views": lambda x, y: (x.t(), y, y[:, ::2], y[2], x.transpose(0, 1)[-1]),
    "twice": lambda x, y: (y, y),
    "chain": lambda x, y: (y, y.permute(1, 0)[1:4, 1]),
    "packed": lambda x, y: (x.contiguous(), y),
    "unsaid": lambda x, y: (y, y.view(-1)),
    "alone": lambda x, y: x.t(),
    "changed": lambda x, y: (x.add_(1), y),
    "own": lambda x, y: (y, y + 1),
}


class Returns(nn.Module):
    """Returns what a function makes of x and of its tanh."""

    def __init__(self, returned: str) -> None:
        super().__init__()
        self.returned = returned

    def forward(self, x: torch.Tensor) -> object:
        return RETURNED[self.returned](x, torch.tanh(x))


def shared(returned: str) -> Captured:
    loaded = problem_from_module(Returns(returned), (torch.randn(6, 5),))
    return with_output_views(loaded, capture(loaded))


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ("input", "(x_given, out)"),
        ("views", "(x_given.t(), out, out[:, ::2], out[2], x_given.transpose(0, 1)[-1])"),
        ("twice", "(out, out)"),
        ("chain", "(out, out.permute(1, 0)[1:4][:, 1])"),
    ],
)
def test_an_output_that_is_a_view_is_written_as_one(returned: str, text: str) -> None:
    captured = shared(returned)
    assert len(captured.computed) == 1
    written = return_text(captured, ["out"], {"x": "x_given"})
    assert written == f"return {text}"
    x = torch.randn(6, 5)
    found = eval(text, {"x_given": x, "out": torch.tanh(x)})
    wanted = RETURNED[returned](x, torch.tanh(x))
    torch.testing.assert_close(found, wanted)
    assert [item.stride() for item in found] == [item.stride() for item in wanted]  # type: ignore[attr-defined]


@pytest.mark.quick(3)
@pytest.mark.parametrize("returned", ["packed", "unsaid", "alone", "changed", "own"])
def test_an_output_that_is_a_copy_for_some_inputs_stays_one_of_its_own(returned: str) -> None:
    captured = shared(returned)
    assert captured.views == {}
    assert captured.computed == tuple(name for name in captured.outputs if name is not None)


def test_gradients_are_of_every_output() -> None:
    captured = shared("input")
    assert return_text(captured, ["first", "second"]) == "return (first, second)"
