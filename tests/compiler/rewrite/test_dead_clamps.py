"""Clamps that change nothing go, judged by structure alone."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.compiler.rewrite.checks import PROPERTY, checked

F = nn.functional
Tensor = torch.Tensor
RULE = "dead clamps"
PRODUCERS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu, "sigmoid": torch.sigmoid, "softmax": lambda x: torch.softmax(x, 1),
    "abs": torch.abs, "exp": torch.exp, "square": lambda x: x * x, "even": lambda x: x**2,
    "root": lambda x: x.abs().sqrt(), "tanh": torch.tanh, "clamp": lambda x: x.clamp(0.25, 0.5),
    "hardtanh": F.hardtanh, "relu6": F.relu6, "neg": lambda x: -torch.relu(x),
    "log": lambda x: torch.log_softmax(x, 1), "sum": lambda x: torch.exp(x) + torch.sigmoid(x),
    "mean": lambda x: torch.relu(x).mean(1, keepdim=True), "view": lambda x: x.relu().t(),
    "plain": lambda x: x + 1.0, "difference": lambda x: x.relu() - x.sigmoid(),
    "pool": lambda x: F.avg_pool1d(torch.relu(x)[None], 2)[0], "norm": lambda x: x.norm(dim=1),
}  # fmt: skip
CONSUMERS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu, "clamp": lambda x: x.clamp(0.0, 1.0), "hardtanh": F.hardtanh,
    "relu6": F.relu6, "abs": torch.abs, "least": lambda x: x.clamp(min=-1.0),
    "most": lambda x: torch.clamp_max(x, 0.0), "inside": lambda x: x.clamp(0.3, 0.4),
    "outside": lambda x: x.clamp(2.0, 3.0),
}  # fmt: skip
DEAD = {
    ("relu", "relu"), ("sigmoid", "clamp"), ("softmax", "clamp"), ("tanh", "hardtanh"),
    ("square", "relu"), ("even", "abs"), ("exp", "relu"), ("root", "relu"), ("sum", "relu"),
    ("mean", "relu"), ("view", "relu"), ("log", "most"), ("neg", "most"), ("clamp", "relu6"),
    ("hardtanh", "least"), ("pool", "abs"), ("norm", "relu"),
}  # fmt: skip
ALIVE = {
    ("plain", "relu"), ("difference", "relu"), ("tanh", "relu"), ("sum", "clamp"),
    ("mean", "clamp"), ("exp", "relu6"), ("log", "least"), ("abs", "hardtanh"), ("plain", "abs"),
}  # fmt: skip


class Chain(nn.Module):
    def __init__(self, *names: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.parts = names

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x


@PROPERTY
@given(
    producer=st.sampled_from(sorted(PRODUCERS)),
    consumers=st.lists(st.sampled_from(sorted(CONSUMERS)), min_size=1, max_size=3),
)
def test_any_chain_stays_the_same(producer: str, consumers: list[str]) -> None:
    parts = [PRODUCERS[producer], *(CONSUMERS[name] for name in consumers)]
    checked(Chain(*parts), [torch.randn(6, 8)], seeds=3)


@pytest.mark.quick(6)
@pytest.mark.parametrize(("producer", "consumer"), sorted(DEAD))
def test_dead_ones_go(producer: str, consumer: str) -> None:
    module = Chain(PRODUCERS[producer], CONSUMERS[consumer])
    assert checked(module, [torch.randn(6, 8)], seeds=1).rules[-1] == RULE


@pytest.mark.quick(4)
@pytest.mark.parametrize(("producer", "consumer"), sorted(ALIVE))
def test_live_ones_stay(producer: str, consumer: str) -> None:
    module = Chain(PRODUCERS[producer], CONSUMERS[consumer])
    assert RULE not in checked(module, [torch.randn(6, 8)], seeds=1).rules


def test_two_clamps_become_one() -> None:
    module = Chain(lambda x: x.clamp(-2.0, 0.75), F.relu6, lambda x: x.clamp(max=0.5))
    result = checked(module, [torch.randn(6, 8)], seeds=3)
    assert (result.ops, result.rewritten.degenerate) == (["aten.clamp.default"], ())


def test_clamps_without_a_common_value_give_a_constant_that_is_reported() -> None:
    module = Chain(lambda x: x.clamp(-2.0, -1.0), torch.relu)
    assert checked(module, [torch.randn(6, 8)], seeds=3).rewritten.degenerate == (0,)


def test_neutral_numbers_vanish() -> None:
    module = Chain(torch.tanh, lambda x: x * 1.0, lambda x: (x + 0.0) / 1, lambda x: x - 0)
    assert checked(module, [torch.randn(6, 8)]).ops == ["aten.tanh.default"]
    assert checked(Chain(lambda x: 2.0 / x), [torch.randn(6, 8)]).rules == []
    assert checked(Chain(lambda x: 0.0 - x), [torch.randn(6, 8)]).rules == []
