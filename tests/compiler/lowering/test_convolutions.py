"""Convolutions on channels-last memory: the kernels around them read and write that layout."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from agentkernel.compiler.fusion import Region
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.pipeline import Compiled
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.compiler.forms import small
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
