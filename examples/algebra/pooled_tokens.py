"""Mean-pooled tokens behind a projection, then maxout: 32 x 1024 tokens, 1024 to 4096, fp32.

mean_i (x_i W + b) = (mean_i x_i) W + b: one row a document is projected, not each of its tokens;
the ReLU never falls, so the maximum is taken before it.
"""

import torch
from torch import nn


class Model(nn.Module):
    """y = max over groups of relu(mean over tokens of x @ weight^T + bias), one value a group."""

    def __init__(self, width: int, features: int, group: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, features)
        self.group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = self.proj(x).mean(dim=1)
        groups = pooled.unflatten(1, (-1, self.group))
        return torch.relu(groups).amax(dim=2)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 1024, 1024)]


def get_init_inputs() -> list[object]:
    return [1024, 4096, 8]
