"""A bottleneck block, fp16: 1 x 1, 3 x 3, 1 x 1 around a residual."""

import torch
from torch import nn


class Model(nn.Module):
    """relu(x + expand(middle(reduce(x))))."""

    def __init__(self, channels: int, middle: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, middle, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(middle)
        self.conv2 = nn.Conv2d(middle, middle, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(middle)
        self.conv3 = nn.Conv2d(middle, channels, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(channels)
        for item in self.modules():
            if isinstance(item, nn.BatchNorm2d):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)
                nn.init.normal_(item.running_mean, std=0.2)
                nn.init.uniform_(item.running_var, 0.5, 1.5)
        self.to(torch.float16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.relu(self.norm1(self.conv1(x)))
        out = torch.relu(self.norm2(self.conv2(out)))
        return torch.relu(self.norm3(self.conv3(out)) + x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 1024, 14, 14, dtype=torch.float16)]


def get_init_inputs() -> list[object]:
    return [1024, 256]
