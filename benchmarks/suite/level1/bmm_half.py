"""Many small products at once, fp16."""

import torch
from torch import nn


class Model(nn.Module):
    """a[i] b[i] for every i."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.bmm(a, b)


def get_inputs() -> list[torch.Tensor]:
    a = torch.randn(384, 512, 64, dtype=torch.float16)
    return [a, torch.randn(384, 64, 512, dtype=torch.float16)]


def get_init_inputs() -> list[object]:
    return []
