"""Reductions over one element are what is left of them, NaN and infinities included."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.compiler.rewrite.checks import PROPERTY, checked

RULE = "single elements"
Tensor = torch.Tensor
REDUCED: dict[str, Callable[[Tensor, bool], Tensor]] = {
    "sum": lambda x, keep: x.sum(1, keepdim=keep),
    "mean": lambda x, keep: x.mean(1, keepdim=keep),
    "amax": lambda x, keep: x.amax(1, keepdim=keep),
    "max": lambda x, keep: x.max(1, keepdim=keep)[0],
    "min place": lambda x, keep: x.min(1, keepdim=keep)[1],
    "argmax": lambda x, keep: x.argmax(1, keepdim=keep),
    "prod": lambda x, keep: x.prod(1, keepdim=keep),
    "logsumexp": lambda x, keep: torch.logsumexp(x, 1, keepdim=keep),
    "softmax": lambda x, _: torch.softmax(x, 1),
    "log_softmax": lambda x, _: torch.log_softmax(x, 1),
    "var": lambda x, keep: x.var(1, correction=0, keepdim=keep),
    "std": lambda x, keep: x.std(1, correction=0, keepdim=keep),
    "norm": lambda x, keep: torch.linalg.vector_norm(x, dim=1, keepdim=keep),
    "cumsum": lambda x, _: x.cumsum(1),
}
CONSTANT = ("min place", "argmax", "softmax", "log_softmax", "var", "std")


class Single(nn.Module):
    def __init__(self, name: str, keep: bool) -> None:
        super().__init__()
        self.name, self.keep = name, keep

    def forward(self, x: Tensor) -> Tensor:
        return REDUCED[self.name](x * 3.0, self.keep)


@pytest.mark.quick(8)
@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.parametrize("keep", [False, True])
def test_one_element(name: str, keep: bool) -> None:
    result = checked(Single(name, keep), [torch.randn(7, 1, 5)])
    if name != "norm":
        assert result.rules == [RULE]
    assert result.rewritten.degenerate == ((0,) if name in CONSTANT else ())


class More(Single):
    """The reduced size is static, and not 1."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.reshape(-1, 3, 5))


@pytest.mark.slow
@PROPERTY
@given(name=st.sampled_from(sorted(REDUCED)), keep=st.booleans())
def test_more_elements_are_left_alone(name: str, keep: bool) -> None:
    assert RULE not in checked(More(name, keep), [torch.randn(7, 3, 5)], seeds=1).rules
    assert RULE not in checked(Single(name, keep), [torch.randn(7, 2, 5)], seeds=1).rules


class Unbiased(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.var(1)


def test_the_unbiased_variance_of_one_element_is_left_alone() -> None:
    assert checked(Unbiased(), [torch.randn(7, 1)]).rules == []


class Centred(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.sum(1, keepdim=True)
        return nn.functional.gelu(y - y.mean(1, keepdim=True)), y


def test_a_value_minus_its_own_mean_is_reported_and_keeps_nan() -> None:
    assert checked(Centred(), [torch.randn(9, 4)]).rewritten.degenerate == (0,)


class Handed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1)


def test_an_output_is_no_view_of_an_input() -> None:
    result = checked(Handed(), [torch.randn(9, 1)])
    assert result.ops == ["aten.squeeze.dims", "aten.clone.default"]


class HandedTwice(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2.0
        return y, y.logsumexp(1, keepdim=True)


def test_two_outputs_do_not_come_to_share_memory() -> None:
    result = checked(HandedTwice(), [torch.randn(9, 1)])
    assert (result.rules, result.ops) == ([RULE], ["aten.mul.Tensor", "aten.clone.default"])
