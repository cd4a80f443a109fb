"""A diffusion U-Net's residual block with a time embedding, bf16."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """shortcut(x) + conv(silu(norm(conv(silu(norm(x))) + W silu(t))))."""

    def __init__(self, channels: int, outputs: int, features: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(32, channels)
        self.conv1 = nn.Conv2d(channels, outputs, 3, padding=1)
        self.time = nn.Linear(features, outputs)
        self.norm2 = nn.GroupNorm(32, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(channels, outputs, 1)
        for item in self.modules():
            if isinstance(item, nn.GroupNorm):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)
        self.to(torch.bfloat16)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        out = self.conv1(F.silu(self.norm1(x)))
        out = out + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(out)))


def get_inputs() -> list[torch.Tensor]:
    x = torch.randn(8, 320, 32, 32, dtype=torch.bfloat16)
    return [x, torch.randn(8, 1280, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return [320, 640, 1280]
