"""Outputs that lie in the memory of an input or of another output."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from agentkernel.compiler.drop_in.views import with_output_views
from agentkernel.compiler.drop_in.wrapper import return_text
from agentkernel.compiler.partitions import partitions
from agentkernel.tools.judge.reference.oracle import together_in
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.forms import assert_accepted, small

Returned = Callable[[torch.Tensor, torch.Tensor], object]
RETURNED: dict[str, Returned] = {
    "input": lambda x, y: (x, y),
    "views": lambda x, y: (x.t(), y, y[:, ::2], y[2], x.transpose(0, 1)[-1]),
    "twice": lambda x, y: (y, y),
    "chain": lambda x, y: (y, y.permute(1, 0)[1:4, 1]),
    "packed": lambda x, y: (x.contiguous(), y),
    "flat": lambda x, y: (y, y.view(-1)),
    "shaped": lambda x, y: (y, y.reshape(-1)),
    "late": lambda x, y: (y[1:], y, y[..., None].expand(-1, -1, 2)),
    "parts": lambda x, y: (y[:2].t(), y[2:]),
    "split": lambda x, y: (*y.split([2, 4]), *y.unbind(1)),
    "heads": lambda x, y: [z.view(z.shape[0], 1, z.shape[1]).mT for z in (y, y[1:])],
    "turned": lambda x, y: y.t(),
    "spread": lambda x, y: y[:, None].expand(6, 3, 5),
    "cut": lambda x, y: y[:, 1:3],
    "copied": lambda x, y: (y[:3].clone(), y[3:]),
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
        ("flat", "(out, out.view(-1))"),
        ("late", "(out[1:], out, out.unsqueeze(2).expand(-1, -1, 2))"),
        ("parts", "(out[:2].t(), out[2:])"),
        ("split", "(out[:2], out[2:6], out[:, 0], out[:, 1], out[:, 2], out[:, 3], out[:, 4])"),
        (
            "heads",
            "[out.view(6, 1, 5).transpose(-2, -1), out[1:].view(5, 1, 5).transpose(-2, -1)]",
        ),
    ],
)
def test_an_output_that_is_a_view_is_written_as_one(returned: str, text: str) -> None:
    captured = shared(returned)
    assert len(captured.computed) == 1
    values = {node.name: node.meta.get("val") for node in captured.graph.graph.nodes}
    sizes = {name: str(x.node.hint) for name, x in values.items() if isinstance(x, torch.SymInt)}
    written = return_text(captured, ["out"], {"x": "x_given"}, sizes)
    assert written == f"return {text}"
    x = torch.randn(6, 5)
    found = eval(text, {"x_given": x, "out": torch.tanh(x)})
    wanted = RETURNED[returned](x, torch.tanh(x))
    torch.testing.assert_close(found, wanted)
    assert isinstance(wanted, list | tuple)
    assert [item.stride() for item in found] == [item.stride() for item in wanted]
    assert together_in(found) == together_in(wanted)


class Projected(nn.Module):
    """Returns what a function makes of x W^T."""

    def __init__(self, returned: str, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.project = nn.Linear(16, 24, dtype=dtype)
        self.returned = returned

    def forward(self, x: torch.Tensor) -> object:
        return PROJECTED[self.returned](self.project(x))


PROJECTED: dict[str, Callable[[torch.Tensor], object]] = {
    "chunks": lambda y: y.chunk(3, -1),
    "heads": lambda y: [
        z.view(z.shape[0], z.shape[1], 2, 4).transpose(1, 2) for z in y.chunk(3, -1)
    ],
    "head": lambda y: torch.relu(y).view(y.shape[0], y.shape[1], 3, 8).transpose(1, 2),
    "last": lambda y: y[:, -1],
    "expanded": lambda y: y[:, :1].expand(-1, 5, -1),
    "stages": lambda y: dict(zip("abc", y.unflatten(-1, (3, 8)).unbind(-2), strict=True)),
}
TEXTS = {
    "chunks": "(output[:, :, :8], output[:, :, 8:16], output[:, :, 16:24])",
    "heads": "[output[:, :, :8].view(x_dim0, x_dim1, 2, 4).transpose(1, 2), ",
    "head": "output.view(x_dim0, x_dim1, 3, 8).transpose(1, 2)",
    "last": "output[:, -1]",
    "expanded": "output[:, :1].expand(-1, 5, -1)",
    "stages": "{'a': output.view(x_dim0, x_dim1, 3, 8)[:, :, 0], ",
}


@pytest.mark.parametrize("returned", PROJECTED)
def test_views_of_one_product_cost_one_launch(returned: str) -> None:
    loaded = problem_from_module(Projected(returned).eval(), (torch.randn(3, 6, 16),))
    captured = capture(loaded)
    compiled = partitions(loaded, captured, "triton")[0]
    assert len(compiled.partition.steps) == 1
    text = compiled.write(small(compiled, "looped")).text
    assert f"return {TEXTS[returned]}" in text
    assert_accepted(loaded, captured, text)


def test_an_attention_of_which_another_value_is_returned_keeps_its_layout() -> None:
    """Eager's strides are those of the kernel that it picks: what follows it stays an output."""

    class Attends(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.nn.functional.scaled_dot_product_attention(x, x, x)
            return y.transpose(1, 2)

    loaded = problem_from_module(Attends(), (torch.randn(2, 3, 4, 8),))
    assert with_output_views(loaded, capture(loaded)).views == {}


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "returned", ["packed", "shaped", "alone", "changed", "own", "cut", "copied"]
)
def test_an_output_that_is_a_copy_for_some_inputs_stays_one_of_its_own(returned: str) -> None:
    captured = shared(returned)
    assert captured.views == {}
    assert captured.computed == tuple(name for name in captured.outputs if name is not None)


def test_gradients_are_of_every_output() -> None:
    captured = shared("input")
    assert return_text(captured, ["first", "second"]) == "return (first, second)"
