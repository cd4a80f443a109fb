"""Every write to a tensor shows in the sum over its bits."""

import pytest
import torch

from agentkernel.tools.judge.execution import process_state
from agentkernel.tools.judge.execution.process_state import Checksum


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(process_state, "PIECE_BYTES", 256)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("count", [1, 7, 64, 1001])
def test_any_changed_element_shows(dtype, count):
    value = torch.randn(count).to(dtype)
    sums = Checksum()
    before = sums.of(value)
    assert sums.of(value.clone()) == before
    for place in {0, count // 2, count - 1}:
        changed = value.clone()
        changed[place] = ~changed[place] if dtype == torch.bool else changed[place] + 1
        assert sums.of(changed) != before


def test_two_signs_and_two_places_do_not_make_up_for_each_other():
    value = torch.arange(1.0, 257.0)
    sums = Checksum()
    for pair in ([1, 3], [1, 65], [0, 255]):
        signs, places = value.clone(), value.clone()
        signs[pair] *= -1
        places[pair] = value[pair[::-1]]
        assert sums.of(signs) != sums.of(value)
        assert sums.of(places) != sums.of(value)


def test_nobody_else_has_the_same_sums():
    value = torch.arange(64)
    assert Checksum().of(value) != Checksum().of(value)
