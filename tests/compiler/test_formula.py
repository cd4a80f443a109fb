"""Captured graphs as torch code with the module's own gradients, or refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from agentkernel.compiler.drop_in.gradients import FUNCTION, Formula, formula_of
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module


class Called(nn.Module):
    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(6))
        self.register_buffer("mean", torch.rand(6))

    def forward(self, x: torch.Tensor) -> object:
        return self.function(self, x)


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient


def without_grad(module: Called, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        peak = x.amax(-1, keepdim=True)
    return (x - peak) * module.weight


def written(function: Callable[..., object]) -> Formula | str:
    loaded = problem_from_module(Called(function).eval(), [torch.randn(3, 6)])
    return formula_of(loaded, capture(loaded))


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: torch.softmax(x * m.weight + m.mean, -1),
        lambda m, x: (x - x.amax(-1, keepdim=True).detach()) * m.weight,
        lambda m, x: (x.view(x.shape[0] * 2, -1).sum(-1), torch.arange(6, device=x.device) * x),
        lambda m, x: x.masked_fill(x > 0, float("-inf")).argmax(-1) + x.new_zeros(3),
        lambda m, x: x * torch.tensor([0.5, 2.0, -1.0, 3.0, 0.0, 1.5], device=x.device) * m.weight,
    ],
)
def test_its_gradients_are_the_modules(function: Callable[..., object]) -> None:
    formula = written(function)
    assert isinstance(formula, Formula), formula
    namespace: dict[str, object] = {"torch": torch}
    exec(formula.text, namespace)
    module, x = Called(function), torch.randn(3, 6, requires_grad=True)
    held = {"x": x, "weight": module.weight, "mean": module.mean}
    found = namespace[FUNCTION](*[held[name] for name in formula.names])  # type: ignore[operator]
    raw = module(x)
    expected = raw if isinstance(raw, tuple) else (raw,)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
        if other.requires_grad:
            ends, leaves = torch.randn_like(other), [x, module.weight]
            for a, b in zip(
                torch.autograd.grad(one, leaves, ends, allow_unused=True),
                torch.autograd.grad(other, leaves, ends, allow_unused=True),
                strict=True,
            ):
                assert (a is None) == (b is None)
                assert a is None or torch.equal(a, b)


def bits(m: Called, x: torch.Tensor) -> object:
    big, whole = x > 0, x.int()
    shifted = (whole << 2, whole >> whole.new_full((6,), 1))
    return ((big ^ (x > 1)) * x * m.weight, (whole & 3) | 4, *shifted)


def test_no_operator_is_called_by_a_name_that_a_file_may_not_use() -> None:
    formula = written(bits)
    assert isinstance(formula, Formula), formula
    assert ".__" not in formula.text
    namespace: dict[str, object] = {"torch": torch}
    exec(formula.text, namespace)
    module, x = Called(bits), torch.randn(3, 6) * 9
    held = {"x": x, "weight": module.weight}
    found = namespace[FUNCTION](*[held[name] for name in formula.names])  # type: ignore[operator]
    for one, other in zip(found, bits(module, x), strict=True):  # type: ignore[call-overload]
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (without_grad, "switches the recording"),
        (lambda m, x: Straight.apply(x) * m.weight, "backward pass of its own"),
        (lambda m, x: x.add_(1.0) * m.weight, "changes its inputs in place"),
        (lambda m, x: x * m.weight + torch.rand_like(x), "draws random numbers"),
        (lambda m, x: (x * m.weight, x.shape[0]), "a number is among its outputs"),
    ],
)
def test_what_has_no_such_formula_is_refused(function: Callable[..., object], words: str) -> None:
    found = written(function)
    assert isinstance(found, str)
    assert words in found
