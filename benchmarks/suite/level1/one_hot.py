"""Class indices as rows of zeros with a single 1."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """one_hot with 1000 classes, as floats."""

    def forward(self, labels: torch.Tensor) -> torch.Tensor:
        return F.one_hot(labels, 1000).float()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randint(0, 1000, (40000,))]


def get_init_inputs() -> list[object]:
    return []
