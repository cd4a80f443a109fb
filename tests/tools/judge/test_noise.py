"""Random numbers that repeat past a million are as good for large weights as fresh ones."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.tools.judge.cases.module_state import randomise_state
from agentkernel.tools.judge.cases.noise import PERIOD, normals, uniform
from agentkernel.tools.judge.reference.oracle import moved_by_ulp

LARGE = (1100, 1024)
"""Of more elements than a period."""


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 7), max_size=4))
def test_tensors_of_any_shape_are_filled(shape: list[int]) -> None:
    count = math.prod(shape)
    found = normals(count, generator()).over(shape)
    assert list(found.shape) == shape
    assert torch.equal(found.reshape(-1), torch.randn(count, generator=generator()))
    found = uniform(shape, generator())
    assert list(found.shape) == shape
    assert torch.equal(found.reshape(-1), torch.rand(count, generator=generator()))


def test_the_period_is_a_prime() -> None:
    assert PERIOD > 2**20
    assert all(PERIOD % divisor for divisor in range(2, math.isqrt(PERIOD) + 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_repetitions_are_uniform_and_none_is_another(dtype: torch.dtype) -> None:
    found = uniform(LARGE, generator(), dtype).flatten()
    assert found.dtype == dtype
    assert (float(found.min()) >= 0, float(found.max()) < 1) == (True, True)
    again = found[PERIOD:]
    assert abs(float(again.mean()) - 0.5) < 0.01
    assert not bool((again == found[: len(again)]).any())


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("sign", [0, 1])
def test_no_two_rows_of_a_large_constant_weight_are_alike(value: float, sign: int) -> None:
    module = torch.nn.Linear(LARGE[1], LARGE[0], bias=False)
    torch.nn.init.constant_(module.weight, value)
    randomise_state(module, 3, sign)
    weight = module.weight.detach()
    assert len({tuple(row[:8].tolist()) for row in weight}) == len(weight)
    flat = weight.flatten()
    again, first = flat[PERIOD:], flat[: len(flat) - PERIOD]
    assert float(((again == first) & (again != 0)).float().mean()) < 0.01


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
