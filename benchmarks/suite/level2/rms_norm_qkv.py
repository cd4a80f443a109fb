"""RMSNorm written out and the projection to queries, keys and values, bf16."""

import torch
from torch import nn


class Model(nn.Module):
    """three parts of W (x / rms(x) * g)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.empty(features).uniform_(0.5, 1.5))
        self.project = nn.Linear(features, 3 * features, bias=False)
        self.to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        wide = x.float()
        normed = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
        q, k, v = self.project(normed * self.gain).chunk(3, dim=-1)
        return q, k, v


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 1024, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return [1024]
