"""A cosine classifier: both sides normalised, product, temperature, log-softmax."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """log_softmax(20 * cos(x, w))."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = 20.0 * F.normalize(x, dim=-1) @ F.normalize(self.weight, dim=-1).t()
        return F.log_softmax(logits, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 512)]


def get_init_inputs() -> list[object]:
    return [512, 1000]
