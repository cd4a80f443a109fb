"""Focal loss over dense detections."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """mean(alpha (1 - p)^2 bce), p the probability of the truth."""

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        raw = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        probability = torch.exp(-raw)
        alpha = 0.25 * target + 0.75 * (1 - target)
        return (alpha * (1 - probability).square() * raw).mean()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 100000, 20), (torch.rand(8, 100000, 20) < 0.02).float()]


def get_init_inputs() -> list[object]:
    return []
