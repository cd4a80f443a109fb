"""A module whose own outputs are not finite is compared elsewhere, and the verdict says so."""

from __future__ import annotations

from collections.abc import Callable

from agentkernel.domain.verdict import Verdict
from tests.tools.judge.sources import problem_of

DROP_IN = """import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0)
    tl.store(out_ptr + at, tl.sqrt(-1.0 - x * x), mask=at < count)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
        return out
"""


def test_nan_for_all_of_its_own_inputs_is_said(judged: Callable[..., Verdict]) -> None:
    found = judged(
        problem_of("torch.sqrt(-1.0 - x * x)", "torch.randn(4, 24)"), DROP_IN, budget_s=60.0
    )
    assert found.accepted, found.failure
    assert "gives NaN or infinities (100% of the values)" in found.uncompared
    assert (
        f"{len(found.not_finite)} of {len(found.not_finite) + len(found.cases)}" in found.uncompared
    )
