"""Non-causal linear attention with an elu feature map."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """phi(q) (phi(k)^T v) / (phi(q) sum phi(k)), phi = elu + 1."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(features, 3 * features, bias=False)
        self.out = nn.Linear(features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            item.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for item in self.qkv(x).chunk(3, dim=-1)
        )
        q, k = F.elu(q) + 1, F.elu(k) + 1
        scale = q @ k.sum(dim=-2, keepdim=True).transpose(-2, -1)
        mixed = q @ (k.transpose(-2, -1) @ v) / (scale + 1e-6)
        return self.out(mixed.transpose(1, 2).flatten(2))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 4096, 512)]


def get_init_inputs() -> list[object]:
    return [512, 8]
