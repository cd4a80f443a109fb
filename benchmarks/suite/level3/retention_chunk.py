"""Retention in its parallel form: decaying causal scores without a softmax, group norm, gate."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """W (group_norm((q k^T * decay) v) * silu(g))."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkvg = nn.Linear(features, 4 * features, bias=False)
        self.norm = nn.GroupNorm(heads, features)
        self.out = nn.Linear(features, features, bias=False)
        rates = torch.log(1 - torch.exp2(-5.0 - torch.arange(heads)))
        self.register_buffer("rates", rates[:, None, None])
        for item in self.modules():
            if isinstance(item, nn.GroupNorm):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, features = x.shape
        q, k, v, gate = self.qkvg(x).chunk(4, dim=-1)
        q, k, v = (item.unflatten(-1, (self.heads, -1)).transpose(1, 2) for item in (q, k, v))
        place = torch.arange(tokens, device=x.device)
        distance = place[:, None] - place[None, :]
        decay = torch.where(distance >= 0, torch.exp(self.rates * distance.clamp(min=0)), 0.0)
        mixed = (q @ k.transpose(-2, -1) * decay / math.sqrt(q.shape[-1])) @ v
        flat = mixed.transpose(1, 2).reshape(batch * tokens, features)
        return self.out(self.norm(flat).view(batch, tokens, features) * F.silu(gate))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 512, 512)]


def get_init_inputs() -> list[object]:
    return [512, 8]
