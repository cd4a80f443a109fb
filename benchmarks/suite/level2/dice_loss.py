"""Dice loss of segmentation masks: three sums over the pixels."""

import torch
from torch import nn


class Model(nn.Module):
    """1 - mean(2 sum(p t) / (sum(p) + sum(t)))."""

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        p = torch.sigmoid(logits).flatten(2)
        t = target.flatten(2)
        overlap = (p * t).sum(-1)
        return 1 - (2 * (overlap + 1) / (p.sum(-1) + t.abs().sum(-1) + 2)).mean()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 8, 512, 512), (torch.rand(16, 8, 512, 512) < 0.3).float()]


def get_init_inputs() -> list[object]:
    return []
