"""Pointwise kernels of few elements: programs enough for the card, with an element a thread or
more."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from agentkernel.compiler.fusion import Region
from agentkernel.compiler.partitions import partitions
from agentkernel.compiler.providers.rows import region_schedules
from agentkernel.tools.problem.capture import capture
from agentkernel.tools.problem.loading import problem_from_module


@pytest.mark.parametrize(
    ("count", "block", "warps"), [(12288, 128, 4), (100_000, 256, 4), (1 << 20, 1024, 4)]
)
def test_blocks_fill_the_card_where_elements_are_few(count: int, block: int, warps: int) -> None:
    class Plain(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x) * x

    problem = problem_from_module(Plain(), (torch.randn(count),))
    compiled = partitions(problem, capture(problem), "triton")[0]
    (region,) = compiled.partition.steps
    assert isinstance(region, Region)
    first = region_schedules(region, compiled.symbols, lambda _: None)[0]
    assert (first.block_cols, first.num_warps) == (block, warps)
