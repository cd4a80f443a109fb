"""A dense mixture of experts: eight feed-forward parts, weighted by a router's two best."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """sum over the experts of weight[e] * W2[e] gelu(W1[e] x)."""

    def __init__(self, features: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.experts = experts
        self.router = nn.Linear(features, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, features, hidden) / math.sqrt(features))
        self.down = nn.Parameter(torch.randn(experts, hidden, features) / math.sqrt(hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        best, chosen = torch.topk(self.router(x), 2, dim=-1)
        shares = torch.softmax(best, dim=-1)
        weights = (F.one_hot(chosen, self.experts) * shares[..., None]).sum(dim=1)
        hidden = F.gelu(torch.einsum("tf,efh->eth", x, self.up))
        return torch.einsum("eth,ehf,te->tf", hidden, self.down, weights)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1024, 512)]


def get_init_inputs() -> list[object]:
    return [512, 1024, 8]
