"""The convolution module of a speech encoder."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """x + W2 silu(norm(depthwise(glu(W1 norm(x)))))."""

    def __init__(self, features: int, kernel: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.enter = nn.Conv1d(features, 2 * features, 1)
        self.conv = nn.Conv1d(features, features, kernel, padding=kernel // 2, groups=features)
        self.inner = nn.BatchNorm1d(features)
        self.leave = nn.Conv1d(features, features, 1)
        for item in self.modules():
            if isinstance(item, nn.BatchNorm1d):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)
                nn.init.normal_(item.running_mean, std=0.2)
                nn.init.uniform_(item.running_var, 0.5, 1.5)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.glu(self.enter(self.norm(x).transpose(1, 2)), dim=1)
        out = self.leave(F.silu(self.inner(self.conv(out))))
        return x + out.transpose(1, 2)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 500, 256)]


def get_init_inputs() -> list[object]:
    return [256, 31]
