"""The compiler coder takes rewritten graphs as they are, and its drop-ins are right."""

import pytest
import torch
from torch import nn

from agentkernel.agents.compiler_coder import family
from agentkernel.compiler.drop_in.envelope import adopt_limits
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.rewrite import rewrite
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module
from agentkernel.tools.targets import load_targets
from tests.compiler.sandboxed_drop_in import Sandboxed

F = nn.functional
Tensor = torch.Tensor


class LinearSum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(48, 40)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x).sum(1, keepdim=True)
        return torch.logsumexp(torch.max(y, 1, keepdim=True)[0], 1, keepdim=True)


class ConvMean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 24, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid((self.conv(x.reshape(-1, 4, 11, 13)) * 2.0).mean((2, 3)))


class TransposedMean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(4, 24, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x.reshape(-1, 4, 11, 13))
        return torch.softmax(y.mean((2, 3), keepdim=True) + 1.0, 1)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (LinearSum(), (torch.randn(37, 48),)),
        (ConvMean(), (torch.randn(3, 4, 11, 13),)),
        (TransposedMean(), (torch.randn(3, 4, 11, 13),)),
    ],
)
def test_a_drop_in_from_the_rewritten_graph(
    box: Sandboxed, module: nn.Module, inputs: tuple[Tensor, ...]
) -> None:
    problem = problem_from_module(module, inputs)
    captured = capture(problem)
    result = rewrite(captured)
    assert result.steps
    adopt_limits(problem, captured, result.captured)
    choices = partitions(problem, result.captured, "mixed")
    target = load_targets()["h100-sxm"]
    for variant in family(choices, "any", lambda _: None, target)[:2]:
        text = variant.source.text
        box.check(text, module, inputs)
