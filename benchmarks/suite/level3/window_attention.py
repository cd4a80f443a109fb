"""A shifted-window block: windows of 7 x 7, relative position bias, feed-forward."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """Attention inside shifted windows, then a feed-forward layer, a residual around each."""

    def __init__(self, features: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.norm1 = nn.LayerNorm(features)
        self.qkv = nn.Linear(features, 3 * features)
        self.out = nn.Linear(features, features)
        self.bias = nn.Parameter(torch.randn(heads, window * window, window * window) * 0.2)
        self.norm2 = nn.LayerNorm(features)
        self.up = nn.Linear(features, 4 * features)
        self.down = nn.Linear(4 * features, features)
        for item in self.modules():
            if isinstance(item, nn.LayerNorm):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, h, w, c = x.shape
        size, shift = self.window, self.window // 2
        moved = torch.roll(self.norm1(x), shifts=(-shift, -shift), dims=(1, 2))
        parts = moved.view(n, h // size, size, w // size, size, c).transpose(2, 3)
        qkv = self.qkv(parts.reshape(-1, size * size, c)).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + self.bias
        mixed = self.out((torch.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2))
        back = mixed.view(n, h // size, w // size, size, size, c).transpose(2, 3)
        x = x + torch.roll(back.reshape(n, h, w, c), shifts=(shift, shift), dims=(1, 2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 56, 56, 96)]


def get_init_inputs() -> list[object]:
    return [96, 3, 7]
