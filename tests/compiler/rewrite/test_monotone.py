"""Functions that keep order wait for the maximum, and no others."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.compiler.rewrite.checks import PROPERTY, checked

F = nn.functional
Tensor = torch.Tensor
MONOTONE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "exp": torch.exp,
    "hardtanh": F.hardtanh, "clamp": lambda x: x.clamp(-0.5, 0.25), "relu6": F.relu6,
    "elu": F.elu, "leaky": lambda x: F.leaky_relu(x, 0.1), "softplus": F.softplus,
    "scale": lambda x: x * 2.5, "divide": lambda x: x / 3.0, "add": lambda x: x + 1.5,
}  # fmt: skip
FALLING: dict[str, Callable[[Tensor], Tensor]] = {
    "neg": torch.neg, "scale": lambda x: x * -2.0, "from one": lambda x: 1.0 - x,
}  # fmt: skip
OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu, "silu": F.silu, "abs": torch.abs, "log": torch.log, "sqrt": torch.sqrt,
    "cos": torch.cos, "down": lambda x: F.leaky_relu(x, -0.1), "square": lambda x: x * x,
    "inverse": lambda x: 2.0 / x,
}  # fmt: skip
EXTREMA: dict[str, Callable[[Tensor], Tensor]] = {
    "amax": lambda x: x.amax((2, 3)),
    "amin": lambda x: x.amin(1, keepdim=True),
    "max": lambda x: x.max(),
    "max values": lambda x: x.max(2)[0],
}  # fmt: skip
POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "pool": lambda x: F.max_pool2d(x, 2),
    "padded": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
}


class Chain(nn.Module):
    def __init__(self, *parts: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.parts = parts

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x


@PROPERTY
@given(
    name=st.sampled_from(sorted(MONOTONE)), extremum=st.sampled_from(sorted({**EXTREMA, **POOLS}))
)
def test_rising_functions_wait(name: str, extremum: str) -> None:
    chain = Chain(MONOTONE[name], {**EXTREMA, **POOLS}[extremum])
    assert checked(chain, [torch.randn(3, 4, 9, 8)]).rules == ["monotone"]


@PROPERTY
@given(name=st.sampled_from(sorted(FALLING)), extremum=st.sampled_from(sorted(EXTREMA)))
def test_falling_functions_swap_maximum_and_minimum(name: str, extremum: str) -> None:
    chain = Chain(FALLING[name], EXTREMA[extremum])
    assert checked(chain, [torch.randn(3, 4, 9, 8)]).rules == ["monotone"]


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("extremum", ["amax", "pool"])
def test_other_functions_stay(name: str, extremum: str) -> None:
    chain = Chain(OTHERS[name], {**EXTREMA, **POOLS}[extremum])
    assert checked(chain, [torch.randn(3, 4, 9, 8)], seeds=1).rules == []


@pytest.mark.parametrize("name", FALLING)
def test_falling_functions_stay_before_a_max_pooling(name: str) -> None:
    chain = Chain(FALLING[name], POOLS["pool"])
    assert checked(chain, [torch.randn(3, 4, 9, 8)], seeds=1).rules == []


class Placed(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, places = torch.relu(x).max(1)
        return values, places


def test_nothing_moves_where_the_place_is_read() -> None:
    assert checked(Placed(), [torch.randn(5, 9)]).rules == []


class Offset(nn.Module):
    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.c = nn.Parameter(torch.ones(sizes))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.c).amax(1)


class InputOffset(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x + y).amax(1)


def test_what_is_added_must_be_the_same_along_the_dimension_and_finite() -> None:
    x = torch.randn(5, 9, 4)
    assert checked(Offset(5, 1, 4), [x]).rules == ["monotone"]
    assert checked(Offset(4), [x]).rules == ["monotone"]
    assert checked(Offset(9, 1), [x]).rules == []
    assert checked(InputOffset(), [x, torch.randn(5, 1, 4)], seeds=4).rules == []
