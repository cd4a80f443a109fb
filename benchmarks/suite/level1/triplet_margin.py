"""Triplet loss of embeddings."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """mean(max(||a - p|| - ||a - n|| + 0.3, 0))."""

    def forward(
        self, anchor: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor
    ) -> torch.Tensor:
        return F.triplet_margin_loss(anchor, positive, negative, margin=0.3)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32768, 512), torch.randn(32768, 512), torch.randn(32768, 512)]


def get_init_inputs() -> list[object]:
    return []
