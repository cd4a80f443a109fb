"""A mobile block: expansion, depthwise convolution, squeeze-and-excite, projection."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """x + project(gated(depthwise(expand(x))))."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.expand = nn.Conv2d(channels, hidden, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(hidden)
        self.depthwise = nn.Conv2d(hidden, hidden, 5, padding=2, groups=hidden, bias=False)
        self.norm2 = nn.BatchNorm2d(hidden)
        self.squeeze = nn.Conv2d(hidden, hidden // 24, 1)
        self.excite = nn.Conv2d(hidden // 24, hidden, 1)
        self.project = nn.Conv2d(hidden, channels, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(channels)
        for item in self.modules():
            if isinstance(item, nn.BatchNorm2d):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)
                nn.init.normal_(item.running_mean, std=0.2)
                nn.init.uniform_(item.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.silu(self.norm1(self.expand(x)))
        out = F.silu(self.norm2(self.depthwise(out)))
        gate = F.silu(self.squeeze(F.adaptive_avg_pool2d(out, 1)))
        out = out * torch.sigmoid(self.excite(gate))
        return x + self.norm3(self.project(out))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 40, 28, 28)]


def get_init_inputs() -> list[object]:
    return [40, 240]
