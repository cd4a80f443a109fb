"""Negative log-likelihood of counts under a predicted log-rate."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """mean(exp(rate) - count * rate)."""

    def forward(self, rate: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        return F.poisson_nll_loss(rate, count, log_input=True)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 5001), torch.rand(4096, 5001) * 4]


def get_init_inputs() -> list[object]:
    return []
