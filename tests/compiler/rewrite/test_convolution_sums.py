"""Means over space and channels move through convolutions, borders included."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.compiler.rewrite.checks import PROPERTY, checked, run, same

RULE = "convolution sums"
CLASSES = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


class Averaged(nn.Module):
    def __init__(self, conv: nn.Module, dims: list[int], keep: bool = False) -> None:
        super().__init__()
        self.conv, self.dims, self.keep = conv, dims, keep

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).mean(self.dims, keepdim=self.keep)


class Pooled(nn.Module):
    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(self.conv(x))


def _space(n: int) -> list[int]:
    return list(range(2, 2 + n))


@PROPERTY
@given(
    n=st.integers(1, 2),
    kernel=st.integers(1, 4),
    padding=st.integers(0, 3),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    bias=st.booleans(),
    keep=st.booleans(),
)
def test_a_mean_over_space(
    n: int, kernel: int, padding: int, stride: int, dilation: int, bias: bool, keep: bool
) -> None:
    conv = CLASSES[n](3, 32, kernel, stride, padding, dilation, bias=bias)
    result = checked(Averaged(conv, _space(n), keep), [torch.randn(2, 3, *[17, 15][:n])])
    assert RULE in result.rules


@pytest.mark.slow
@PROPERTY
@given(
    n=st.integers(1, 2),
    kernel=st.integers(1, 4),
    padding=st.integers(0, 2),
    stride=st.integers(1, 3),
    extra=st.integers(0, 1),
    dilation=st.integers(1, 2),
    bias=st.booleans(),
)
def test_a_mean_over_the_space_of_a_transposed_one(
    n: int, kernel: int, padding: int, stride: int, extra: int, dilation: int, bias: bool
) -> None:
    extra = min(extra, max(stride, dilation) - 1)
    conv = TRANSPOSED[n](3, 16, kernel, stride, padding, extra, bias=bias, dilation=dilation)
    result = checked(Averaged(conv, _space(n)), [torch.randn(2, 3, *[11, 9][:n])])
    assert RULE in result.rules


@pytest.mark.slow
def test_three_dimensions_groups_same_padding_and_other_sizes() -> None:
    volume = Averaged(nn.Conv3d(2, 16, 3, padding=1), [0, 2, 3, 4])
    assert RULE in checked(volume, [torch.randn(2, 2, 7, 6, 5)]).rules
    grouped = Pooled(nn.Conv2d(6, 36, 3, groups=3))
    assert RULE in checked(grouped, [torch.randn(2, 6, 17, 19)]).rules
    even = Averaged(nn.Conv2d(3, 32, 4, padding="same"), [2, 3])
    result = checked(even, [torch.randn(2, 3, 12, 12)])
    assert RULE in result.rules
    for size in (6, 9, 31):
        x = torch.randn(3, 3, size, size + 1, dtype=torch.float64)
        same(run(result.captured, even, [x]), run(result.rewritten.captured, even, [x]))


@pytest.mark.slow
def test_a_size_below_the_borders_is_ruled_out() -> None:
    """The graph says for which sizes its slices hold."""
    result = checked(Averaged(nn.Conv2d(3, 32, 7), [2, 3]), [torch.randn(2, 3, 20, 20)])
    assert RULE in result.rules
    symbols = [item.symbol for item in result.captured.free_dims]
    sizes = {item.symbol: item.size for item in result.captured.free_dims}
    assert result.rewritten.captured.admits(sizes)
    small = {**sizes, symbols[1]: 9}
    assert result.captured.admits(small)
    assert not result.rewritten.captured.admits(small)


@pytest.mark.slow
@PROPERTY
@given(kernel=st.integers(1, 3), transposed=st.booleans(), keep=st.booleans())
def test_a_mean_over_channels(kernel: int, transposed: bool, keep: bool) -> None:
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    conv = kind(3, 24, kernel, padding=kernel // 2)
    result = checked(Averaged(conv, [1], keep), [torch.randn(2, 3, 16, 16)])
    assert result.rules[0] == RULE


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "module",
    [
        Averaged(nn.Conv2d(3, 16, 3), [2]),
        Averaged(nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU()), [2, 3]),
        Averaged(nn.Conv2d(4, 16, 3, groups=2), [1]),
        Averaged(nn.ConvTranspose2d(4, 16, 3, groups=2), [2, 3]),
        Averaged(nn.Conv2d(4, 16, 3, padding=1, padding_mode="reflect"), [1, 2]),
    ],
)
def test_what_is_left_alone(module: nn.Module) -> None:
    channels = 3 if "(3, 16" in repr(module) else 4
    assert RULE not in checked(module, [torch.randn(2, channels, 12, 12)], seeds=1).rules
