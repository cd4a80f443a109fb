"""Pooled convolutions, common factors and small-side scales save work and keep the result."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.compiler.rewrite.checks import PROPERTY, checked

F = nn.functional
Tensor = torch.Tensor


class Pooled(nn.Module):
    def __init__(self, conv: nn.Module, window: int, step: int | None = None) -> None:
        super().__init__()
        self.conv, self.window, self.step = conv, window, step

    def forward(self, x: Tensor) -> Tensor:
        pool = F.avg_pool1d if x.ndim == 3 else F.avg_pool2d
        return pool(self.conv(x), self.window, self.step)


@pytest.mark.slow
@PROPERTY
@given(
    n=st.integers(1, 2), kernel=st.integers(1, 3), padding=st.integers(0, 2),
    stride=st.integers(1, 2), window=st.integers(2, 3), groups=st.sampled_from([1, 2]),
)  # fmt: skip
def test_a_pooling_with_stride_goes_into_the_convolution(
    n: int, kernel: int, padding: int, stride: int, window: int, groups: int
) -> None:
    kind = nn.Conv1d if n == 1 else nn.Conv2d
    module = Pooled(kind(4, 8, kernel, stride, padding, groups=groups), window)
    result = checked(module, [torch.randn(2, 4, *[19, 18][:n])], infinities=False)
    small = kernel - 1 + stride * window <= 2 * kernel
    assert "pooled convolutions" in result.rules or not small or n == 1


@pytest.mark.slow
def test_only_finite_values_only_without_dilation_only_if_cheaper() -> None:
    x = torch.randn(2, 4, 18, 18)
    assert checked(Pooled(nn.Conv2d(4, 8, 3), 2), [x], infinities=False).rules
    assert checked(Pooled(nn.Conv2d(4, 8, 3), 2), [x]).rules == []
    dilated = Pooled(nn.Conv2d(4, 8, 3, dilation=2), 2)
    assert checked(dilated, [x], infinities=False).rules == []
    overlapping = Pooled(nn.Conv2d(4, 64, 3), 5, 1)
    assert checked(overlapping, [x], infinities=False).rules == []


class Terms(nn.Module):
    def __init__(self, forward: Callable[[nn.Module, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.ones(7))
        self.v = nn.Linear(7, 9)
        self.w = nn.Linear(7, 9, bias=False)
        self.then = forward

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.then(self, x, y)


SHARED: dict[str, Callable[[nn.Module, Tensor, Tensor], Tensor]] = {
    "parameter": lambda m, x, y: x * m.a + m.a * y,
    "number": lambda m, x, y: x * 0.3 - y * 0.3,
    "divisor": lambda m, x, y: x / 3.0 + y / 3.0,
    "gate": lambda m, x, y: torch.sigmoid(x) * x - torch.sigmoid(x) * y,
    "weight": lambda m, x, y: m.v(x) + m.v(y),
    "difference": lambda m, x, y: m.w(x) - m.w(y),
}
APART: dict[str, Callable[[nn.Module, Tensor, Tensor], Tensor]] = {
    "unbounded": lambda m, x, y: x * y.exp() + y.exp() * y,
    "two numbers": lambda m, x, y: x * 0.3 + y * 0.4,
    "two weights": lambda m, x, y: m.v(x) + m.w(y),
    "one input": lambda m, x, y: m.v(x) + m.w(x),
    "a divisor": lambda m, x, y: m.a / x.abs() + m.a / y.abs(),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", SHARED)
def test_what_two_terms_share_is_taken_out(name: str) -> None:
    inputs = [torch.randn(40, 7), torch.randn(40, 7)]
    result = checked(Terms(SHARED[name]), inputs, seeds=4)
    assert "common factors" in result.rules
    heavy = ("aten.mul.Tensor", "aten.div.Tensor", "aten.linear.default")
    expected = 2 if name == "gate" else 1
    assert sum(op in heavy for op in result.ops) <= expected


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", APART)
def test_what_they_do_not_share_is_not(name: str) -> None:
    inputs = [torch.randn(40, 7), torch.randn(40, 7)]
    assert "common factors" not in checked(Terms(APART[name]), inputs).rules


def test_one_input_twice_is_one_product_of_finite_values() -> None:
    inputs = [torch.randn(40, 7), torch.randn(40, 7)]
    result = checked(Terms(APART["one input"]), inputs, infinities=False)
    assert "common factors" in result.rules
    assert result.ops.count("aten.linear.default") == 1


@pytest.mark.quick(2)
@pytest.mark.parametrize("rows", [4, 4096])
@pytest.mark.parametrize("place", ["after", "before", "divided"])
def test_a_number_goes_into_a_weight_that_is_small(rows: int, place: str) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(7, 9)

        def forward(self, x: Tensor) -> Tensor:
            if place == "before":
                return self.layer(x * 0.3)
            return self.layer(x) * 0.3 if place == "after" else self.layer(x) / 3.0

    result = checked(Scaled(), [torch.randn(rows, 7)])
    assert result.rules == (["small-side scales"] if rows == 4096 else [])


def test_a_convolution_takes_a_number_in_too() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(self.conv(x) * 0.3)

    assert checked(Scaled(), [torch.randn(4, 3, 40, 40)]).rules == ["small-side scales"]


def test_equal_calls_are_made_once_and_random_ones_are_not() -> None:
    class Same(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(x).exp() + torch.tanh(x).exp() * x.sum(1, keepdim=True)

    result = checked(Same(), [torch.randn(5, 7)])
    assert result.rules == ["equal nodes", "equal nodes"]
    assert result.ops.count("aten.tanh.default") == 1

    class Random(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(x, 0.5) - F.dropout(x, 0.5)

    dropped = checked(Random(), [torch.randn(5, 7)], seeds=0)
    assert (dropped.rules, dropped.rewritten.degenerate) == ([], ())


def test_arguments_of_other_types_are_not_equal() -> None:
    class Near(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x.sum(1, keepdim=True), x.sum(1, keepdim=False)

    assert checked(Near(), [torch.randn(5, 7)]).rules == []
