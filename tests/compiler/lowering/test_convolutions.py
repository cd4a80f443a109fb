"""Convolutions on channels-last memory, and depthwise ones as sums of shifted reads."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from agentkernel.compiler.convolutions.step import ConvolutionStep
from agentkernel.compiler.fusion import Region
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.pipeline import Compiled
from agentkernel.compiler.providers import Setting, provider_of
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.targets import find_target
from tests.compiler.forms import compiled_graph, small
from tests.compiler.sandboxed_drop_in import Sandboxed


class Block(nn.Module):
    """Two convolutions with norms, a residual, and a transposed one behind them."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, channels, kernel, padding=kernel // 2)
        self.norm = nn.BatchNorm2d(channels)
        self.two = nn.Conv2d(channels, channels, 1, bias=False)
        self.up = nn.ConvTranspose2d(channels, channels + 1, 2, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.two(self.norm(self.one(x)).relu())
        return self.up((y + x).tanh()).sigmoid()


class Volume(nn.Module):
    """A convolution over a volume, and a mean over it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(3, 5, 3, padding="same")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).relu().mean((2, 3, 4))


def channels_last(module: nn.Module, x: torch.Tensor) -> Compiled:
    """The way to divide the module in which convolutions are channels-last."""
    loaded = problem_from_module(module.eval(), (x,))
    choices = partitions(loaded, capture(loaded), "mixed")
    text = ["permute(0, " in item.write(small(item, "looped")).text for item in choices]
    return choices[text.index(True)]


@given(
    channels=st.sampled_from([1, 3, 8, 17]),
    kernel=st.sampled_from([1, 3]),
    height=st.sampled_from([1, 5, 9]),
    width=st.sampled_from([2, 7, 16]),
)
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_layout_changes_no_value(
    box: Sandboxed, channels: int, kernel: int, height: int, width: int
) -> None:
    module, x = Block(channels, kernel).eval(), torch.randn(2, channels, height, width)
    compiled = channels_last(module, x)
    box.check(compiled.write(small(compiled, "looped")).text, module, (x,))


def test_only_what_comes_in_and_goes_out_is_rearranged() -> None:
    module, x = Block(8, 3).eval(), torch.randn(2, 8, 6, 10)
    regions = [
        step for step in channels_last(module, x).partition.steps if isinstance(step, Region)
    ]
    titles = [region.stores[0].node.name for region in regions]
    assert titles == ["x_last", "relu_last", "tanh_last", "sigmoid"]


@pytest.mark.quick(1)
def test_a_volume_ends_in_a_reduction_over_it(box: Sandboxed) -> None:
    module, x = Volume().eval(), torch.randn(2, 3, 4, 5, 6)
    compiled = channels_last(module, x)
    box.check(compiled.write(small(compiled, "looped")).text, module, (x,))


class Causal(nn.Module):
    """A causal depthwise convolution over tokens, as in state-space models."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.conv = nn.Conv1d(6, 6, kernel, groups=6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = F.pad(x.transpose(1, 2), (self.kernel - 1, 0))
        return F.silu(self.conv(padded)).transpose(1, 2)


@st.composite
def depthwise(draw: st.DrawFn) -> tuple[nn.Module, torch.Tensor]:
    """A depthwise convolution of at most nine taps between two operators, and an input."""
    rank = draw(st.integers(1, 3))
    kernel = draw(st.sampled_from({1: [(4,), (9,)], 2: [(3, 3), (1, 5)], 3: [(2, 2, 2)]}[rank]))
    options = {
        "stride": draw(st.sampled_from([1, 2])), "dilation": draw(st.sampled_from([1, 2])),
        "bias": draw(st.booleans()), "padding": draw(st.sampled_from([0, 1])),
    }  # fmt: skip
    if options["stride"] == 1 and draw(st.booleans()):
        options["padding"] = "same"
    torch.manual_seed(draw(st.integers(0, 99)))
    conv = getattr(nn, f"Conv{rank}d")(5, 5, kernel, groups=5, **options)
    sizes = (20,) if rank == 1 else (11, 13) if rank == 2 else (5, 6, 7)
    return nn.Sequential(nn.Tanh(), conv, nn.ReLU()), torch.randn(2, 5, *sizes)


@given(drawn=depthwise())
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_few_taps_are_one_kernel_with_what_stands_around_them(
    box: Sandboxed, drawn: tuple[nn.Module, torch.Tensor]
) -> None:
    module, x = drawn
    compiled = compiled_graph(module, (x,))
    assert len(compiled.partition.steps) == 1 or len(x.shape) == 4
    assert all(isinstance(step, Region) for step in compiled.partition.steps)
    box.check(compiled.write(small(compiled, "looped")).text, module, (x,))


@pytest.mark.parametrize("kernel", [3, 4])
def test_a_causal_one_reads_tokens_as_they_lie(box: Sandboxed, kernel: int) -> None:
    module, x = Causal(kernel).eval(), torch.randn(2, 80, 6)
    compiled = compiled_graph(module, (x,))
    (step,) = compiled.partition.steps
    setting = Setting(compiled.symbols, find_target("h200").target, "strict", lambda _: None)
    assert provider_of(step).schedules(step, setting)[0].form == "tile"
    box.check(compiled.write(small(compiled, "looped")).text, module, (x,))


def test_many_taps_have_a_kernel_of_their_own() -> None:
    found = compiled_graph(nn.Conv2d(5, 5, 5, groups=5), (torch.randn(2, 5, 9, 9),))
    assert isinstance(found.partition.steps[0], ConvolutionStep)
