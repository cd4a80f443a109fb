"""One element a row and position, by an index tensor."""

import torch
from torch import nn


class Model(nn.Module):
    """gather along the last dimension."""

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.gather(x, 2, index)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 512, 2000), torch.randint(0, 2000, (32, 512, 1000))]


def get_init_inputs() -> list[object]:
    return []
