"""Graph attention on dense adjacency: scores from both ends, masked softmax."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """elu(softmax(leaky_relu(s_i + d_j) where adjacent) W x)."""

    def __init__(self, features: int, outputs: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.linear = nn.Linear(features, heads * outputs, bias=False)
        self.source = nn.Parameter(torch.randn(heads, outputs) * 0.3)
        self.destination = nn.Parameter(torch.randn(heads, outputs) * 0.3)

    def forward(self, x: torch.Tensor, adjacent: torch.Tensor) -> torch.Tensor:
        h = self.linear(x).unflatten(-1, (self.heads, -1))
        left = (h * self.source).sum(-1).transpose(1, 2)
        right = (h * self.destination).sum(-1).transpose(1, 2)
        scores = F.leaky_relu(left[..., :, None] + right[..., None, :], 0.2)
        weights = torch.softmax(scores.masked_fill(~adjacent[:, None], -1e4), dim=-1)
        return F.elu((weights @ h.transpose(1, 2)).transpose(1, 2).flatten(2))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 700, 256), torch.rand(8, 700, 700) < 0.05]


def get_init_inputs() -> list[object]:
    return [256, 64, 4]
