"""A decoder block: causal attention, attention over a memory of another length, feed-forward."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """Three residual steps, a LayerNorm before each."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(features)
        self.qkv = nn.Linear(features, 3 * features, bias=False)
        self.out1 = nn.Linear(features, features)
        self.norm2 = nn.LayerNorm(features)
        self.q = nn.Linear(features, features, bias=False)
        self.kv = nn.Linear(features, 2 * features, bias=False)
        self.out2 = nn.Linear(features, features)
        self.norm3 = nn.LayerNorm(features)
        self.up = nn.Linear(features, 4 * features)
        self.down = nn.Linear(4 * features, features)
        for item in self.modules():
            if isinstance(item, nn.LayerNorm):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)

    def attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
    ) -> torch.Tensor:
        """Attention of (batch, tokens, features), the heads split off and joined again."""
        parts = (item.unflatten(-1, (self.heads, -1)).transpose(1, 2) for item in (q, k, v))
        return F.scaled_dot_product_attention(*parts, is_causal=causal).transpose(1, 2).flatten(2)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        x = x + self.out1(self.attend(q, k, v, causal=True))
        k, v = self.kv(memory).chunk(2, dim=-1)
        x = x + self.out2(self.attend(self.q(self.norm2(x)), k, v, causal=False))
        return x + self.down(F.gelu(self.up(self.norm3(x)), approximate="tanh"))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 128, 512), torch.randn(8, 1500, 512)]


def get_init_inputs() -> list[object]:
    return [512, 8]
