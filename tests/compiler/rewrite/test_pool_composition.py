"""Poolings that follow each other become one."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.compiler.rewrite.checks import PROPERTY, checked, run, same

F = nn.functional
Tensor = torch.Tensor
RULE = "pool composition"
AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
MAXIMUM = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


class Twice(nn.Module):
    def __init__(self, *parts: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.parts = parts

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x


@pytest.mark.slow
@PROPERTY
@given(
    n=st.integers(1, 3), first=st.integers(1, 3), second=st.integers(2, 3),
    stride=st.integers(1, 3), size=st.integers(11, 16),
)  # fmt: skip
def test_averages_of_tiles(n: int, first: int, second: int, stride: int, size: int) -> None:
    pool = AVERAGE[n]
    module = Twice(lambda x: pool(x, first), lambda x: pool(x, second, stride))
    x = torch.randn(2, 3, *[size, size + 1, size - 1][:n])
    result = checked(module, [x])
    assert RULE in result.rules
    for grown in (size + 1, size + 2, 2 * size):
        other = torch.randn(2, 3, *[grown] * n, dtype=torch.float64)
        same(run(result.captured, module, [other]), run(result.rewritten.captured, module, [other]))


@PROPERTY
@given(
    n=st.integers(1, 2), first=st.integers(1, 3), step=st.integers(1, 3), second=st.integers(2, 3),
    stride=st.integers(1, 2),
)  # fmt: skip
def test_maxima_without_gaps(n: int, first: int, step: int, second: int, stride: int) -> None:
    pool = MAXIMUM[n]
    module = Twice(lambda x: pool(x, first, step), lambda x: pool(x, second, stride))
    result = checked(module, [torch.randn(2, 3, *[14, 15][:n])])
    gaps = step > first
    assert (RULE in result.rules) == (not gaps)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("kind", "reduce"),
    [(AVERAGE, lambda x: x.mean((2, 3))), (AVERAGE, lambda x: x.sum((2, 3), keepdim=True)),
     (AVERAGE, lambda x: F.adaptive_avg_pool2d(x, 1)), (MAXIMUM, lambda x: x.amax((1, 2, 3)))],
)  # fmt: skip
def test_a_pooling_is_lost_in_a_later_reduction_of_the_whole(
    kind: dict[int, Callable[..., Tensor]], reduce: Callable[[Tensor], Tensor]
) -> None:
    doubled = nn.Upsample(scale_factor=2)
    module = Twice(doubled, lambda x: kind[2](x, 2), reduce)
    assert RULE in checked(module, [torch.randn(2, 3, 6, 5)]).rules
    cut = Twice(lambda x: x[:, :, :7, :9], lambda x: kind[2](x, 2), reduce)
    assert RULE not in checked(cut, [torch.randn(2, 3, 8, 9)]).rules


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "parts",
    [
        (lambda x: F.avg_pool2d(x, 3, 2), lambda x: F.avg_pool2d(x, 2)),
        (lambda x: F.avg_pool2d(x, 2, padding=1), lambda x: F.avg_pool2d(x, 2)),
        (lambda x: F.avg_pool2d(x, 2), lambda x: F.avg_pool2d(x, 2, ceil_mode=True)),
        (lambda x: F.avg_pool2d(x, 2), lambda x: F.max_pool2d(x, 2)),
        (lambda x: F.max_pool2d(x, 2), lambda x: F.max_pool2d(x, 3, 1, 1)),
        (lambda x: F.max_pool2d(x, 2, dilation=2), lambda x: F.max_pool2d(x, 2)),
        (lambda x: F.max_pool2d(x, 2), lambda x: x.mean((2, 3))),
        (lambda x: F.avg_pool2d(x, 2), lambda x: x.amax((2, 3))),
        (lambda x: F.max_pool2d(x, 2), lambda x: x.amin((2, 3))),
    ],
)
def test_what_is_left_alone(parts: tuple[Callable[[Tensor], Tensor], ...]) -> None:
    assert checked(Twice(*parts), [torch.randn(2, 3, 12, 12)], seeds=1).rules == []


def test_windows_of_one_element_and_adaptive_pools_of_the_same_size_vanish() -> None:
    module = Twice(torch.relu, lambda x: F.avg_pool2d(x, 1), lambda x: F.max_pool2d(x, 1))
    assert checked(module, [torch.randn(2, 3, 6, 5)]).ops == ["aten.relu.default"]
    fixed = Twice(
        lambda x: F.adaptive_avg_pool2d(x, (4, 3)), lambda x: F.adaptive_avg_pool2d(x, (4, 3))
    )
    assert checked(fixed, [torch.randn(2, 3, 9, 7)]).rules == [RULE]
