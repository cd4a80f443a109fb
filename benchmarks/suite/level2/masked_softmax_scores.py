"""Scores scaled, masked by padding and brought to probabilities, fp16."""

import torch
from torch import nn


class Model(nn.Module):
    """softmax(scores * 0.125 where mask, else -inf-like)."""

    def forward(self, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        filled = (scores * 0.125).masked_fill(~mask[:, None, None, :], -10000.0)
        return torch.softmax(filled, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 12, 512, 512, dtype=torch.float16), torch.rand(16, 512) < 0.8]


def get_init_inputs() -> list[object]:
    return []
