"""Reductions of a convolution's channels in its tile: right, stored once, and where they fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from agentkernel.compiler.convolutions.reducing import MOST_CHANNELS
from agentkernel.compiler.convolutions.schedules import convolution_schedules
from agentkernel.compiler.convolutions.step import ConvolutionStep, convolution_facts
from agentkernel.compiler.pipeline import Compiled
from agentkernel.tools.targets import load_targets
from tests.compiler.forms import compiled_graph, small
from tests.compiler.sandboxed_drop_in import Sandboxed

Tensor = torch.Tensor
End = Callable[[Tensor], Tensor]


class Chain(nn.Module):
    """A layer and what follows it."""

    def __init__(self, layer: nn.Module, end: End) -> None:
        super().__init__()
        self.layer, self.end = layer, end

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self.layer(x))


class Beside(nn.Module):
    """Reductions with what is read beside them: of each channel, each place and each element."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.scale = nn.Parameter(torch.randn(6, 1, 1))
        self.place = nn.Parameter(torch.randn(5, 7))

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        value = F.gelu(self.conv(x) * self.scale + residual)
        return torch.softmax(value, dim=1) * self.place - value.mean(dim=1, keepdim=True)


def norm_of_channels(x: Tensor) -> Tensor:
    mean = x.mean(dim=1, keepdim=True)
    return (x - mean) * torch.rsqrt(x.var(dim=1, keepdim=True, unbiased=False) + 1e-5)


ENDS: dict[str, tuple[nn.Module, End, tuple[int, ...]]] = {
    "min, tanh": (
        nn.Conv2d(3, 8, 3),
        lambda x: torch.tanh(x.min(dim=1, keepdim=True)[0]),
        (2, 3, 9, 6),
    ),
    "softmax": (nn.Conv3d(2, 5, 3, padding=1), lambda x: torch.softmax(x, dim=1), (2, 2, 3, 5, 4)),
    "log-sum-exp": (
        nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1),
        lambda x: torch.logsumexp(x, dim=1) * 2 + 1,
        (2, 4, 5, 3),
    ),
    "mean": (nn.Conv1d(4, 17, 3, dilation=2), lambda x: F.relu(x).mean(dim=1), (3, 4, 37)),
    "norm": (nn.Conv2d(4, 24, 1), norm_of_channels, (2, 4, 7, 5)),
    "argmax": (nn.Conv2d(4, 10, 3, stride=2), lambda x: x.argmax(dim=1), (2, 4, 9, 9)),
    "sum of one picture": (nn.Conv2d(3, 8, 3), lambda x: x.sum(dim=1, keepdim=True), (1, 3, 8, 8)),
}


def steps_of(module: nn.Module, *inputs: Tensor) -> tuple[Compiled, list[object]]:
    compiled = compiled_graph(module, inputs)
    return compiled, list(compiled.partition.steps)


def checked(box: Sandboxed, module: nn.Module, *inputs: Tensor) -> str:
    """The drop-in's text, which has one step and gives what the module does."""
    compiled, steps = steps_of(module, *inputs)
    (step,) = steps
    assert isinstance(step, ConvolutionStep)
    assert step.epilogue is not None
    text = compiled.write(small(compiled, "looped")).text
    box.check(text, module, inputs)
    return text


@pytest.mark.parametrize("name", ENDS)
def test_a_reduction_of_channels_is_done_in_the_tile(box: Sandboxed, name: str) -> None:
    layer, end, sizes = ENDS[name]
    text = checked(box, Chain(layer, end).eval(), torch.randn(sizes))
    assert "_of_channels(" in text
    if name == "softmax":
        assert "tl.cast(x_dim2, tl.int64)" in text


def test_it_reads_what_lies_beside_channels_places_and_elements(box: Sandboxed) -> None:
    checked(box, Beside().eval(), torch.randn(2, 3, 5, 7), torch.randn(2, 6, 5, 7))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_types(box: Sandboxed, dtype: torch.dtype) -> None:
    module = Chain(nn.Conv2d(4, 8, 3), lambda x: torch.softmax(x, dim=1)).eval().to(dtype)
    checked(box, module, torch.randn(2, 4, 8, 7).to(dtype))


class TwoResults(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        value = self.conv(x)
        return value, value.sum(dim=1)


@pytest.mark.parametrize(
    "module",
    [
        TwoResults(),
        Chain(nn.Conv2d(3, 8, 3), lambda x: x.mean(dim=(1, 2))),
        Chain(nn.Conv2d(3, 8, 3), lambda x: x.amax(dim=3)),
        Chain(nn.Conv2d(3, 8, 3), lambda x: x.amax(dim=(2, 3))),
        Chain(nn.Conv2d(3, 2 * MOST_CHANNELS, 3), lambda x: x.amax(dim=1)),
        Chain(nn.Conv2d(3, 9, 3, groups=3), lambda x: x.amax(dim=1)),
        Chain(nn.Conv2d(3, 8, 3), lambda x: x.cumsum(dim=1)),
        Chain(nn.Conv2d(3, 1, 3), lambda x: x.softmax(dim=1)),
    ],
    ids=[
        "returned too",
        "channels and rows",
        "one axis",
        "few places",
        "too many",
        "groups",
        "a scan",
        "one channel",
    ],
)
def test_what_no_tile_holds_has_a_kernel_of_its_own(module: nn.Module) -> None:
    _, steps = steps_of(module.eval(), torch.randn(2, 3, 8, 8))
    assert len(steps) > 1


def test_a_result_of_one_place_has_a_kernel_of_its_own(box: Sandboxed) -> None:
    module, x = (
        Chain(nn.Conv2d(3, 6, 3), lambda x: x.softmax(dim=1)).eval(),
        torch.randn(1, 3, 3, 3),
    )
    compiled, steps = steps_of(module, x)
    assert len(steps) > 1
    box.check(compiled.write(small(compiled, "looped")).text, module, [x])


@pytest.mark.parametrize("stride", [2, 4, 8])
@pytest.mark.parametrize("channels", [24, 96, 200, 256])
@pytest.mark.parametrize("layer", [nn.Conv2d, nn.ConvTranspose2d])
def test_every_schedule_holds_all_channels(
    layer: type[nn.Module], channels: int, stride: int
) -> None:
    made = layer(16, channels, stride, stride=stride)  # type: ignore[call-arg, arg-type]
    module = Chain(made, lambda x: torch.softmax(x, dim=1)).eval()
    compiled, (step,) = steps_of(module, torch.randn(2, 16, 40, 40))
    assert isinstance(step, ConvolutionStep)
    facts = convolution_facts(step, compiled.symbols)
    for target in load_targets().values():
        found = convolution_schedules(facts, target, 20)
        assert found, target.name
        assert all(item["BLOCK_M"] >= channels for item in found)
