"""A timed call's output is told for the answer to its input, to another's, or to none."""

from __future__ import annotations

import pytest
import torch

from agentkernel.tools.profiler.timing.arena import Layout, make_buffers, packed, row
from agentkernel.tools.profiler.timing.batch import OutputProbe, check_all, check_one, distance

ANSWERS = {call: [torch.linspace(1, 2, 64) * (1 + 0.1 * call)] for call in range(4)}


def exact(call: int) -> list[torch.Tensor]:
    return [item.clone() for item in ANSWERS[call]]


def reason(call: int, found: list[torch.Tensor]) -> str | None:
    wrong = check_one(call, found, ANSWERS)
    return None if wrong is None else wrong.reason


def test_rounding_passes() -> None:
    assert reason(1, [exact(1)[0] * (1 + 1e-4)]) is None
    half = {call: [rows[0].to(torch.bfloat16)] for call, rows in ANSWERS.items()}
    assert check_one(1, [half[1][0] * 1.01], half) is None


def test_the_answer_to_another_call_is_stale() -> None:
    assert reason(2, exact(1)) == "stale_output"
    assert reason(2, [exact(1)[0] * (1 + 1e-5)]) == "stale_output"


def test_half_the_work_is_wrong() -> None:
    half = exact(3)
    half[0][32:] = 0
    assert reason(3, half) == "wrong_output"
    assert reason(3, [torch.full((64,), torch.nan)]) == "wrong_output"


def test_equal_answers_to_different_inputs_accuse_nobody() -> None:
    same = {call: [torch.ones(64)] for call in range(3)}
    assert check_one(0, [torch.ones(64)], same) is None
    assert check_all([torch.ones(3, 64)], same) is None


def test_every_call_is_looked_at_for_absence_and_repetition() -> None:
    rows = torch.stack([exact(call)[0] for call in range(4)])
    assert check_all([rows], ANSWERS) is None
    absent, repeated = rows.clone(), rows.clone()
    absent[3] = torch.nan
    repeated[3] = repeated[2]
    missing, stale = check_all([absent], ANSWERS), check_all([repeated], ANSWERS)
    assert missing.reason == "missing_output"
    assert stale.reason == "stale_output"


def test_two_scalars_may_agree_by_chance() -> None:
    known = {0: [torch.tensor([1.0])], 1: [torch.tensor([2.0])]}
    assert check_all([torch.tensor([[1.0], [2.0], [2.0]])], known) is None


def test_answers_that_are_zero_nearly_everywhere_may_look_alike():
    """As those of a projection onto the simplex: 64 places of two calls may all hold zeros."""
    torch.manual_seed(0)
    sparse = torch.where(torch.rand(40, 64) < 0.01, torch.rand(40, 64), 0.0)
    known = {0: [torch.eye(64)[0]], 1: [torch.eye(64)[1]]}
    assert len({tuple(row) for row in sparse.tolist()}) < 40
    assert check_all([sparse], known) is None
    full = torch.where(torch.rand(40, 64) < 0.5, torch.rand(40, 64), 0.0)
    assert check_all([full], known) is None
    full[7] = full[3]
    assert check_all([full], known).reason == "stale_output"


@pytest.mark.parametrize(
    ("found", "expected", "apart"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 5], 0.25),
        ([3.0, 4.0], [3.0, 4.0], 0.0),
        ([3.0, 0.0], [3.0, 4.0], 0.8),
        ([float("nan"), 4.0], [float("nan"), 4.0], 0.0),
        ([float("inf"), 4.0], [float("-inf"), 4.0], 1.0),
        ([0.0, 1.0], [0.0, 0.0], 1.0),
    ],
)
def test_distances(found: list[float], expected: list[float], apart: float) -> None:
    assert distance(torch.tensor(found), torch.tensor(expected)) == pytest.approx(apart)


def test_a_look_takes_the_same_places_of_every_row() -> None:
    layout = Layout((), (packed("float32", [40, 40]), packed("int64", [3])), 5, flush_bytes=64)
    slots = make_buffers(layout, "cpu").slots
    for index in range(5):
        first, second = row(slots, layout.outputs, index)
        first.copy_(torch.arange(1600.0).view(40, 40) + 10_000 * index)
        second.fill_(index)
    found = OutputProbe(layout, "cpu", seed=1).at(slots, 4)
    assert [tuple(item.shape) for item in found] == [(4, 512), (4, 3)]
    assert torch.equal(found[0][3] - found[0][0], torch.full((512,), 30_000.0))
    assert found[1].tolist() == [[index] * 3 for index in range(4)]
    assert not torch.equal(found[0], OutputProbe(layout, "cpu", seed=2).at(slots, 4)[0])
