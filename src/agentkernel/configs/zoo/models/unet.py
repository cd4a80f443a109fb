"""The denoiser of a diffusion model: a UNet with cross-attention to a text."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

GROUPS = 8
"""Groups of each group norm; every number of channels is a multiple of it."""


class TimeEmbedding(nn.Module):
    """Sines and cosines of a time step, then two layers: `[batch]` to `[batch, width]`."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        rates = torch.exp(torch.arange(channels // 2) * (-math.log(10000.0) / (channels // 2)))
        self.register_buffer("rates", rates, persistent=False)
        self.first = nn.Linear(channels, width)
        self.second = nn.Linear(width, width)

    def forward(self, step: Tensor) -> Tensor:
        angles = step[:, None] * self.get_buffer("rates")
        waves = torch.cat([angles.sin(), angles.cos()], dim=-1).to(self.first.weight.dtype)
        y: Tensor = self.second(F.silu(self.first(waves)))
        return y


class NormSilu(nn.Module):
    """Group norm, then SiLU: `[batch, channels, height, width]`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.norm(x))


class ResidualBlock(nn.Module):
    """Two convolutions with the time step added between them."""

    def __init__(self, inputs: int, outputs: int, time_width: int) -> None:
        super().__init__()
        self.norm1 = NormSilu(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time_width, outputs)
        self.norm2 = NormSilu(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(self.norm1(x)) + self.time(F.silu(time))[:, :, None, None]
        out: Tensor = self.conv2(self.norm2(y)) + self.skip(x)
        return out


class Attention(nn.Module):
    """Attention of `x` [batch, tokens, width] to `source` [batch, others, source_width]."""

    def __init__(self, width: int, heads: int, source_width: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(source_width, width, bias=False)
        self.value = nn.Linear(source_width, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, source: Tensor) -> Tensor:
        q, k, v = (
            item.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for item in (self.query(x), self.key(source), self.value(source))
        )
        mixed = F.scaled_dot_product_attention(q, k, v)
        y: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return y


class GatedGelu(nn.Module):
    """`a * gelu(b)` of the two halves of a projection: `[..., width]` to `[..., hidden]`."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 2 * hidden)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.proj(x).chunk(2, dim=-1)
        y: Tensor = value * F.gelu(gate)
        return y


class SpatialTransformer(nn.Module):
    """Pixels as tokens: self-attention, attention to the text, a gated feed-forward."""

    def __init__(self, channels: int, heads: int, text_width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.norm1 = nn.LayerNorm(channels)
        self.self_attention = Attention(channels, heads, channels)
        self.norm2 = nn.LayerNorm(channels)
        self.cross_attention = Attention(channels, heads, text_width)
        self.norm3 = nn.LayerNorm(channels)
        self.mlp = nn.Sequential(
            GatedGelu(channels, 4 * channels), nn.Linear(4 * channels, channels)
        )

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        tokens = self.norm(x).flatten(2).transpose(1, 2)
        normed = self.norm1(tokens)
        tokens = tokens + self.self_attention(normed, normed)
        tokens = tokens + self.cross_attention(self.norm2(tokens), text)
        tokens = tokens + self.mlp(self.norm3(tokens))
        y: Tensor = x + tokens.transpose(1, 2).unflatten(-1, x.shape[-2:])
        return y


class Stage(nn.Module):
    """A residual block, and attention at this resolution."""

    def __init__(
        self, inputs: int, outputs: int, time_width: int, heads: int, text_width: int
    ) -> None:
        super().__init__()
        self.block = ResidualBlock(inputs, outputs, time_width)
        self.attention = SpatialTransformer(outputs, heads, text_width)

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        y: Tensor = self.attention(self.block(x, time), text)
        return y


class UNet(nn.Module):
    """Predicts the noise in `latents`.

    `latents` [batch, in_channels, size, size], `step` [batch] (floating), `text` [batch, tokens,
    text_width]; the size halves between levels, of which `channels` has one number each.
    """

    def __init__(
        self, *, in_channels: int, channels: Sequence[int], heads: int, text_width: int
    ) -> None:
        super().__init__()
        time_width = 4 * channels[0]
        rest = (time_width, heads, text_width)
        self.time = TimeEmbedding(channels[0], time_width)
        self.first = nn.Conv2d(in_channels, channels[0], 3, padding=1)
        lower = [channels[0], *channels[:-1]]
        self.down = nn.ModuleList(
            Stage(before, after, *rest) for before, after in zip(lower, channels, strict=True)
        )
        self.shrink = nn.ModuleList(
            nn.Conv2d(item, item, 3, stride=2, padding=1) for item in channels[:-1]
        )
        self.middle = Stage(channels[-1], channels[-1], *rest)
        self.up = nn.ModuleList(
            Stage(2 * after, before, *rest)
            for before, after in zip(reversed(lower), reversed(channels), strict=True)
        )
        self.grow = nn.ModuleList(
            nn.Conv2d(item, item, 3, padding=1) for item in reversed(channels[:-1])
        )
        self.norm = NormSilu(channels[0])
        self.last = nn.Conv2d(channels[0], in_channels, 3, padding=1)

    def forward(self, latents: Tensor, step: Tensor, text: Tensor) -> Tensor:
        time = self.time(step)
        x = self.first(latents)
        kept: list[Tensor] = []
        for index, stage in enumerate(self.down):
            x = stage(x, time, text)
            kept.append(x)
            if index < len(self.shrink):
                x = self.shrink[index](x)
        x = self.middle(x, time, text)
        for index, stage in enumerate(self.up):
            x = stage(torch.cat([x, kept.pop()], dim=1), time, text)
            if index < len(self.grow):
                x = self.grow[index](F.interpolate(x, scale_factor=2.0, mode="nearest"))
        y: Tensor = self.last(self.norm(x))
        return y
