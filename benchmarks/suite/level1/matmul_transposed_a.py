"""A product whose left factor is stored transposed, fp32: the weight gradient of a layer."""

import torch
from torch import nn


class Model(nn.Module):
    """a^T b."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.t() @ b


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 1536), torch.randn(8192, 2048)]


def get_init_inputs() -> list[object]:
    return []
