"""Binary cross-entropy of many labels, with a weight a label."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """mean of the weighted binary cross-entropy of logits."""

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.empty(labels).uniform_(0.5, 4.0))

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(logits, target, pos_weight=self.weight)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16384, 1203), torch.rand(16384, 1203)]


def get_init_inputs() -> list[object]:
    return [1203]
