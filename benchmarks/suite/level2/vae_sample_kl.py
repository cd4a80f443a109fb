"""Reparametrised sample with given noise, and the divergence from a unit normal."""

import torch
from torch import nn


class Model(nn.Module):
    """mean + exp(log_var / 2) noise; 0.5 sum(mean^2 + exp(log_var) - 1 - log_var)."""

    def forward(
        self, mean: torch.Tensor, log_var: torch.Tensor, noise: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        clamped = log_var.clamp(-6.0, 6.0)
        variance = torch.exp(clamped)
        divergence = 0.5 * (mean.square() + variance - 1 - clamped).sum(dim=-1)
        return mean + torch.sqrt(variance) * noise, divergence


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16384, 1000) for _ in range(3)]


def get_init_inputs() -> list[object]:
    return []
