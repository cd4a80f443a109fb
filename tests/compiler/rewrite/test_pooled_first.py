"""Affine maps that are the same everywhere wait for an average pooling, and no others."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import fx, nn
from torch.fx.node import Target

from tests.compiler.rewrite.checks import PROPERTY, checked

F = nn.functional
Tensor = torch.Tensor
RULE = "pooled first"


class Pooled(nn.Module):
    def __init__(self, step: Callable[[nn.Module, Tensor], Tensor], window: int = 2) -> None:
        super().__init__()
        self.c = nn.Parameter(torch.ones(6, 1, 1))
        self.wide = nn.Parameter(torch.ones(8, 9))
        self.conv = nn.Conv2d(6, 16, 1)
        self.grouped = nn.Conv2d(6, 12, 1, groups=2, bias=False)
        self.padded = nn.Conv2d(6, 16, 1, padding=1)
        self.strided = nn.Conv2d(6, 16, 1, stride=2)
        self.square = nn.Conv2d(6, 16, 3)
        self.norm = nn.BatchNorm2d(6)
        self.step, self.window = step, window

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(self.step(self, x), self.window)


WAIT: dict[str, Callable[[Pooled, Tensor], Tensor]] = {
    "number": lambda m, x: x * 0.5 + 1.0,
    "divisor": lambda m, x: x / 3.0,
    "from": lambda m, x: 1.0 - x,
    "channels": lambda m, x: x * m.c - m.c,
    "pointwise": lambda m, x: m.conv(x),
    "grouped": lambda m, x: m.grouped(x),
    "norm": lambda m, x: m.norm(x),
    "all": lambda m, x: m.conv(m.norm(x) * m.c) * 2.0,
}
STAY: dict[str, Callable[[Pooled, Tensor], Tensor]] = {
    "places": lambda m, x: x * m.wide,
    "padded": lambda m, x: m.padded(x),
    "strided": lambda m, x: m.strided(x),
    "square": lambda m, x: m.square(x),
    "relu": lambda m, x: torch.relu(x),
    "itself": lambda m, x: x * x,
    "inverse": lambda m, x: m.c / x,
    "own scale": lambda m, x: x * x.amax((2, 3), keepdim=True),
}


@PROPERTY
@given(name=st.sampled_from(sorted(WAIT)), window=st.integers(2, 3))
def test_what_waits(name: str, window: int) -> None:
    assert RULE in checked(Pooled(WAIT[name], window), [torch.randn(3, 6, 8, 9)]).rules


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", STAY)
def test_what_does_not(name: str) -> None:
    assert RULE not in checked(Pooled(STAY[name]), [torch.randn(3, 6, 8, 9)], seeds=1).rules


def test_nothing_waits_for_padded_windows_or_in_training_mode() -> None:
    class Padded(Pooled):
        def forward(self, x: Tensor) -> Tensor:
            return F.avg_pool2d(x + 1.0, 3, padding=1)

    assert checked(Padded(WAIT["number"]), [torch.randn(3, 6, 8, 9)], seeds=1).rules == []
    result = checked(Pooled(WAIT["norm"]), [torch.randn(3, 6, 8, 9)], training=True, seeds=1)
    assert result.rules == []


class Rounded(fx.Interpreter):
    """Runs a graph as a GPU does by default: what an fp32 convolution reads is rounded to TF32."""

    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target == torch.ops.aten.conv2d.default:
            args = (to_tf32(args[0]), to_tf32(args[1]), *args[2:])
        return super().call_function(target, args, kwargs)


def to_tf32(value: Tensor) -> Tensor:
    bits = value.view(torch.int32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def test_means_that_a_norm_tells_apart_are_not_rounded_to_tf32() -> None:
    """The means of values in [0, 1) are alike: what rounding leaves of their differences is all
    that the norm sees."""

    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(8, 16, 1), nn.InstanceNorm2d(16)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(F.avg_pool2d(self.conv(x), 16))

    torch.manual_seed(0)
    module, x = Normed().eval(), torch.rand(2, 8, 64, 64)
    result = checked(module, [x], seeds=1)
    assert RULE in result.rules
    with torch.no_grad():
        exact = copy.deepcopy(module).double()(x.double())
        found = []
        for captured in (result.captured, result.rewritten.captured):
            state = [module.get_parameter(name) for name in captured.parameters.values()]
            (value,) = Rounded(captured.graph).run(*state, x)
            found.append(float((value - exact).norm() / exact.norm()))
    eager, ours = found
    assert 1e-5 < eager < 1e-2
    assert ours < eager / 8


def test_half_precision_keeps_its_convolution() -> None:
    half = checked(Pooled(WAIT["pointwise"]).half(), [torch.randn(3, 6, 8, 9).half()], seeds=1)
    assert RULE in half.rules
    assert "aten.conv2d.default" in half.ops
