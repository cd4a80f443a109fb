"""A transposing copy between the layouts of a batch of matrices, fp16."""

import torch
from torch import nn


class Model(nn.Module):
    """x with its last two dimensions swapped, contiguous."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2).contiguous()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 1025, 1024, dtype=torch.float16)]


def get_init_inputs() -> list[object]:
    return []
