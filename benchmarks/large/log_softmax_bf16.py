"""Log-softmax of 8192 rows of 262144 in bf16."""

import torch
from torch import nn


class Model(nn.Module):
    """Log-softmax over the last dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(x, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 262144, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return []
