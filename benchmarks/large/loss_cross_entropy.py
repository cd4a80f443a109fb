"""Cross-entropy of 32768 tokens over a vocabulary of 65536, 8.6 GB of logits."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    """Cross-entropy of logits."""

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, target)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32768, 65536), torch.randint(0, 65536, (32768,))]


def get_init_inputs() -> list[object]:
    return []
