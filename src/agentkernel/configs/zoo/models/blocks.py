"""Small models of the usual building blocks, for a zoo that runs without a GPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ResidualNorm(nn.Module):
    """LayerNorm of `x + y`; all are `[..., width]`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        normed: Tensor = self.norm(x + y)
        return normed


class BiasGelu(nn.Module):
    """GELU of `x + bias`; `x` is `[..., width]`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x + self.bias)


class ScaledSoftmax(nn.Module):
    """Softmax of `scores * scale` over the last dimension."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, scores: Tensor) -> Tensor:
        return torch.softmax(scores * self.scale, dim=-1)


class FeedForward(nn.Module):
    """Up, GELU, down: `[..., width]` to `[..., width]`."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=False)
        self.act = BiasGelu(hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(self.act(self.up(x)))
        return y


class Attention(nn.Module):
    """Self-attention of `[batch, tokens, width]`, written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.softmax = ScaledSoftmax((width // heads) ** -0.5)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = self.softmax(q @ k.transpose(-2, -1)) @ v
        y: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return y


class TransformerBlock(nn.Module):
    """Attention and feed-forward, each with its residual norm: `[batch, tokens, width]`."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.attention_norm = ResidualNorm(width)
        self.mlp = FeedForward(width, hidden)
        self.mlp_norm = ResidualNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention_norm(x, self.attention(x))
        y: Tensor = self.mlp_norm(x, self.mlp(x))
        return y


class ResidualMlp(nn.Module):
    """A stack of feed-forwards, with the same parts as a transformer block's: `[..., width]`."""

    def __init__(self, width: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.mlps = nn.ModuleList(FeedForward(width, hidden) for _ in range(layers))
        self.norms = nn.ModuleList(ResidualNorm(width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for mlp, norm in zip(self.mlps, self.norms, strict=True):
            x = norm(x, mlp(x))
        return x


class NormSilu(nn.Module):
    """Batch norm by its running statistics, then SiLU: `[batch, channels, height, width]`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.norm(x))


class ConvBlock(nn.Module):
    """Two 3x3 convolutions around a residual: `[batch, channels, height, width]`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.act = NormSilu(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.second(self.act(self.first(x)))
        return y
