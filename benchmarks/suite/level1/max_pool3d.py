"""Max pooling over video, fp16."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """max_pool3d, kernel (1, 3, 3), stride (1, 2, 2)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool3d(x, (1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 64, 16, 112, 112, dtype=torch.float16)]


def get_init_inputs() -> list[object]:
    return []
