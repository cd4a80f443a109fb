"""The search finds the fast schedule on a real GPU, with broken ones in the family."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agentkernel.tools.problem.loading import load_problem
from agentkernel.tools.search import MeasuringSearcher, best_first
from agentkernel.tools.targets import find_target

pytestmark = pytest.mark.gpu

PROBLEM = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(8192, 8192)]
"""
KERNEL = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def relu(x, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + places, mask=places < n)
    tl.store(out + places, tl.maximum(value, 0.0), mask=places < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), {block}),)
        relu[grid](x, out, x.numel(), BLOCK={block}, num_warps={warps})
        return out
"""


def test_a_family_of_block_sizes(tmp_path: Path) -> None:
    path = tmp_path / "relu.py"
    path.write_text(PROBLEM)
    family = [(block, warps) for block in (64, 256, 1024, 2048, 4096) for warps in (1, 4, 8)]
    sources = [
        KERNEL.replace("{block}", str(block)).replace("{warps}", str(warps))
        for block, warps in family
    ]
    sources.append(sources[8].replace("value, 0.0", "value, 1.0"))
    sources.append(sources[8].replace("x.numel()", "(x.numel() * 500)"))
    schedules = [{"relu": {"block": block, "num_warps": warps}} for block, warps in family]
    begin = time.monotonic()
    found = MeasuringSearcher(seconds=15).rank(
        load_problem(str(path)),
        sources,
        [f"{block}x{warps}" for block, warps in family] + ["wrong", "out of bounds"],
        [*schedules, {}, {}],
        find_target(None).target,
    )
    assert time.monotonic() - begin < 60
    ranked = best_first(found)
    assert len(ranked) >= 10
    assert found[15].pruned is not None
    assert "away from" in found[15].pruned
    assert found[16].pruned is not None
    best = found[ranked[0]]
    slowest = found[ranked[-1]]
    assert best.time_us is not None
    assert slowest.time_us is not None
    assert best.schedule["relu"]["block"] >= 256
    assert best.time_us < 0.8 * slowest.time_us
    assert 2 * 8192 * 8192 * 4 / best.time_us / 1e3 > 0.6 * 3000
