"""Batch norms with momentum=None, as captured in training mode."""

import copy

import pytest
import torch
from torch import nn

from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.cumulative_norm import traceable_averages
from agentkernel.tools.problem.loading import problem_from_module


class Trains(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6, momentum=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.norm.train()
        return self.norm(x)


@pytest.mark.parametrize(
    ("norm", "shape"),
    [
        (nn.BatchNorm1d(6, momentum=None), (5, 6)),
        (nn.BatchNorm1d(6, momentum=None, affine=False), (5, 6, 3)),
        (nn.BatchNorm2d(6, momentum=None), (2, 6, 3, 4)),
        (nn.BatchNorm1d(6, momentum=0.2), (5, 6)),
        (nn.BatchNorm1d(6, momentum=None, track_running_stats=False), (5, 6)),
    ],
)
def test_the_averages_are_those_of_torch_in_both_modes(
    norm: nn.Module, shape: tuple[int, ...]
) -> None:
    other = copy.deepcopy(norm)
    with traceable_averages(norm), torch.no_grad():
        for training in (True, True, False, True):
            x = torch.randn(shape) + 3
            torch.testing.assert_close(norm.train(training)(x), other.train(training)(x))
            torch.testing.assert_close(norm.state_dict(), other.state_dict())
    assert "forward" not in vars(norm)


def test_a_channel_of_equal_values_has_no_variance_and_a_first_batch_forgets() -> None:
    norm = nn.BatchNorm1d(2, momentum=None).train()
    assert norm.running_var is not None
    norm.running_mean.fill_(1e6)
    with traceable_averages(norm), torch.no_grad():
        norm(torch.tensor([0.1, 1e-7]).expand(33, 2))
    assert norm.running_var.tolist() == [0.0, 0.0]
    torch.testing.assert_close(norm.running_mean, torch.tensor([0.1, 1e-7]), rtol=1e-6, atol=0)


def test_the_count_is_a_tensor_of_the_graph() -> None:
    module = Trains()
    captured = capture(problem_from_module(module, (torch.randn(5, 6),)))
    assert captured.mutated_buffers == (
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
    )
    assert captured.free_dims[0].size == 5
    calls = {str(node.target): node for node in captured.graph.graph.nodes}
    shifted = calls["aten.var.correction"].args[0]
    assert isinstance(shifted, torch.fx.Node)
    assert str(shifted.target) == "aten.sub.Tensor", (
        "kernels take the mean of equal values inexactly"
    )
    assert "forward" not in vars(module.norm)
