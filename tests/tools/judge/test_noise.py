"""Random numbers that repeat past a million are as good for large weights as fresh ones."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.tools.judge.cases.module_state import randomise_state
from agentkernel.tools.judge.cases.noise import PERIOD, drawn, laid_out, normals
from agentkernel.tools.judge.reference.oracle import moved_by_ulp

LARGE = (1100, 1024)
"""Of more elements than a period."""


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 7), max_size=4), st.integers(1, 9))
def test_numbers_are_laid_out_in_order_and_again(shape: list[int], count: int) -> None:
    found = laid_out(torch.arange(count), shape)
    assert list(found.shape) == shape
    flat = found.reshape(-1).tolist()
    assert flat == [at % count for at in range(math.prod(shape))]


def test_the_period_is_a_prime() -> None:
    assert PERIOD > 2**20
    assert all(PERIOD % divisor for divisor in range(2, math.isqrt(PERIOD) + 1))


def test_of_a_small_tensor_every_number_is_its_own() -> None:
    assert torch.equal(normals(1000, generator()), torch.randn(1000, generator=generator()))
    assert torch.equal(drawn(1000, generator()), torch.rand(1000, generator=generator()))


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("sign", [0, 1])
def test_no_two_rows_of_a_large_constant_weight_are_alike(value: float, sign: int) -> None:
    module = torch.nn.Linear(LARGE[1], LARGE[0], bias=False)
    torch.nn.init.constant_(module.weight, value)
    randomise_state(module, 3, sign)
    weight = module.weight.detach()
    assert len({tuple(row[:8].tolist()) for row in weight}) == len(weight)
    flat = weight.flatten()
    again = flat[PERIOD : 2 * PERIOD]
    assert float((again == flat[: len(again)]).float().mean()) > 0.5


def test_a_large_weight_moves_as_far_as_a_small_one() -> None:
    small, large = (torch.nn.Linear(1024, rows, bias=False) for rows in (512, LARGE[0]))
    before = [item.weight.detach().clone() for item in (small, large)]
    for item in (small, large):
        randomise_state(item, 3)
    far = [
        float((item.weight.detach() - old).std() / old.std())
        for item, old in zip((small, large), before, strict=True)
    ]
    assert far[1] == pytest.approx(far[0], rel=0.02)
    assert 0.05 < far[0] < 0.3


def test_a_large_tensor_moves_by_an_ulp_and_keeps_its_infinities() -> None:
    value = torch.randn(LARGE, dtype=torch.float64)
    value[3, 5], value[-1, -1] = math.inf, math.nan
    moved = moved_by_ulp(value, torch.float32, 0.0, 7)
    assert math.isinf(moved[3, 5])
    assert math.isnan(moved[-1, -1])
    off = ((moved - value) / value).abs().nan_to_num(0.0)
    eps = torch.finfo(torch.float32).eps
    assert 0.9 * eps < float(off.max()) <= eps
    assert 0.4 * eps < float(off.mean()) < 0.6 * eps
