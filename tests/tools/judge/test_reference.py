"""The oracle's answer where torch's own kernels do not agree."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from agentkernel.tools.judge.comparison.errors import specials
from agentkernel.tools.judge.reference.oracle import call_reference


class Causal(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def test_a_row_of_attention_that_sees_nan_alone_is_nan_to_the_oracle() -> None:
    """torch's fused kernel for the CPU makes 0 of it: what is not defined is not compared."""
    q, k, v = (torch.randn(1, 1, 3, 4) for _ in range(3))
    q[0, 0, 0, 0] = math.nan
    answer = call_reference(Causal(), (q, k, v))
    eager, oracle = answer.leaves[0], answer.oracle[0]
    assert isinstance(eager, torch.Tensor)
    assert oracle[0, 0, 0].isnan().all()
    kinds = specials(eager, oracle)
    undefined = ~(kinds.compared | kinds.agreed)
    assert undefined[0, 0, 0].all() == (not eager[0, 0, 0].isnan().all())
    assert kinds.compared[0, 0, 1:].all()
