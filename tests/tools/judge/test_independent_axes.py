"""Axes of a graph that are proven independent, and the operators that refuse one."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from agentkernel.tools.judge.reference.axis import Axis
from agentkernel.tools.judge.reference.axis_movement import moved_axis
from agentkernel.tools.judge.reference.sliced import Slicing, all_slicings, find_slicing
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from tests.tools.judge.sliced_modules import Call


def analysed(module, *inputs):
    loaded = problem_from_module(module.eval(), inputs)
    return capture(loaded), loaded.problem.shape_sets[0]


def dims_of(module, *inputs):
    """In which dimension of the first output each proven axis lies."""
    return {slicing.outputs[0] for slicing in all_slicings(*analysed(module, *inputs))}


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("module", "shape", "dims"),
    [
        (Call(lambda x: F.softmax(x, dim=1)), (4, 5, 6), {0, 2}),
        (Call(lambda x: x.cumsum(1)), (4, 5, 6), {0, 2}),
        (Call(lambda x: x - x.mean(1, keepdim=True)), (4, 5, 6), {0, 1, 2}),
        (Call(lambda m, x: m(x), nn.Conv1d(5, 3, 2)), (4, 5, 6), {0}),
        (Call(lambda x: x[:, 1:] + x[:, :-1]), (4, 5, 6), {0, 2}),
        (Call(lambda x: x + x.transpose(0, 1)), (4, 4, 6), {2}),
    ],
)
def test_an_axis_is_proven_where_slices_never_meet(module, shape, dims):
    assert dims_of(module, torch.randn(shape)) == {Axis(dim) for dim in dims}


@pytest.mark.parametrize(
    ("module", "shape", "reason"),
    [
        (Call(lambda x: x.flatten().cumsum(0)), (4, 6), "slices may meet in cumsum"),
        (Call(lambda x: torch.fft.fft(x).real), (7,), "fft_fft has no rule"),
        (Call(lambda x: x.sort(0).values.flip(0)), (7,), "slices may meet in sort"),
    ],
)
def test_what_is_not_proven_names_the_operator(module, shape, reason):
    found = find_slicing(*analysed(module, torch.randn(shape)))
    assert isinstance(found, str)
    assert reason in found


def test_a_module_that_writes_to_its_state_is_not_sliced():
    class Count(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.seen.add_(1)
            return x + self.seen

    found = find_slicing(*analysed(Count(), torch.randn(4, 6)))
    assert found == "forward writes to its inputs or buffers"


def test_the_axis_with_the_least_held_whole_comes_first():
    found = find_slicing(*analysed(Call(torch.matmul), torch.randn(64, 32), torch.randn(32, 4)))
    assert isinstance(found, Slicing)
    assert found.outputs == (Axis(0),)
    assert found.whole_bytes == 2 * 32 * 4 * 4


def test_an_axis_survives_a_view_that_keeps_it_together():
    assert moved_axis((4, 6), (24,), Axis(0), 4) == Axis(0, 6)
    assert moved_axis((24,), (4, 6), Axis(0, 6), 4) == Axis(0, 1)
    assert moved_axis((4, 6), (24,), Axis(1), 6) is None
    assert moved_axis((4, 6, 1), (4, 2, 3), Axis(1), 6) is None
    assert moved_axis((4, 6), (4, 1, 6), Axis(1), 6) == Axis(2)
