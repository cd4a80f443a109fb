"""Scalings and additions wait for the sum where that is the same."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.compiler.rewrite.checks import PROPERTY, checked

Tensor = torch.Tensor
RULE = "scaled sums"


class Scaled(nn.Module):
    def __init__(self, step: Callable[[Tensor, Tensor], Tensor], kind: str, *sizes: int) -> None:
        super().__init__()
        self.c = nn.Parameter(torch.ones(sizes))
        self.step, self.kind = step, kind

    def forward(self, x: Tensor) -> Tensor:
        return getattr(torch, self.kind)(self.step(x, self.c), 1)


STEPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mul": lambda x, c: x * c,
    "number": lambda x, _: 2.5 * x,
    "div": lambda x, _: x / 3.0,
    "add": lambda x, c: c + x,
    "sub": lambda x, c: x - c,
    "from": lambda x, c: c - x,
    "one minus": lambda x, _: 1.0 - x,
    "neg": lambda x, _: -x,
}


@PROPERTY
@given(
    step=st.sampled_from(sorted(STEPS)),
    kind=st.sampled_from(["sum", "mean"]),
    sizes=st.sampled_from([(), (7,), (1, 7), (5, 1, 7)]),
)
def test_what_does_not_change_along_the_dimension_waits(
    step: str, kind: str, sizes: tuple[int, ...]
) -> None:
    class Fixed(Scaled):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.reshape(-1, 6, 7))

    result = checked(Fixed(STEPS[step], kind, *sizes), [torch.randn(5, 6, 7)])
    assert result.rules == [RULE]


@pytest.mark.quick(2)
@pytest.mark.parametrize("step", ["mul", "add", "sub"])
def test_what_changes_along_it_does_not(step: str) -> None:
    assert checked(Scaled(STEPS[step], "mean", 6, 1), [torch.randn(5, 6, 7)]).rules == []


class ByInput(nn.Module):
    def __init__(self, verb: str) -> None:
        super().__init__()
        self.verb = verb

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x * y if self.verb == "mul" else x + y).mean(1)


def test_a_factor_from_an_input_may_be_infinite_a_term_may_too() -> None:
    inputs = [torch.randn(5, 8, 7), torch.randn(5, 1, 7)]
    assert checked(ByInput("mul"), inputs).rules == []
    assert checked(ByInput("add"), inputs, seeds=4).rules == [RULE]


def test_a_symbolic_number_of_terms_is_not_counted() -> None:
    class Rows(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x + 1.0).sum(0)

    assert checked(Rows(), [torch.randn(5, 7)]).rules == []


@pytest.mark.quick(1)
@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_waits_for_a_mean_over_space_at_inference_only(training: bool) -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(6)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(x).mean((2, 3))

    result = checked(Norm(), [torch.randn(5, 6, 8, 7)], training=training)
    assert result.rules == ([] if training else [RULE])


def test_batch_norm_does_not_wait_for_a_mean_over_channels() -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(6)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(x).mean((1, 2, 3))

    assert checked(Norm(), [torch.randn(5, 6, 8, 7)]).rules == []


def test_a_chain_waits_as_a_whole() -> None:
    class Chain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return ((x * 2.0 + 1.0) / 3.0).mean(2)

    result = checked(Chain(), [torch.randn(5, 6, 2)])
    assert (result.ops[0], result.rules) == ("aten.mean.dim", [RULE])
