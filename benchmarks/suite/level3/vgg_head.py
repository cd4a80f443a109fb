"""The last stage of a plain convolutional network with its classifier, fp16."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """Three convolutions, pooling, two linear layers."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(3))
        self.hidden = nn.Linear(channels * 49, 1024)
        self.head = nn.Linear(1024, classes)
        self.to(torch.float16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv in self.convs:
            x = torch.relu(conv(x))
        x = F.max_pool2d(x, 2).flatten(1)
        return self.head(F.dropout(torch.relu(self.hidden(x)), 0.5, self.training))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 512, 14, 14, dtype=torch.float16)]


def get_init_inputs() -> list[object]:
    return [512, 1000]
