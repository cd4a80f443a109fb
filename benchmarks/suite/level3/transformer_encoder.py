"""A pre-norm encoder block with fused attention, fp16."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """x + attention(norm(x)); then + W2 gelu(W1 norm(.))."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(features)
        self.qkv = nn.Linear(features, 3 * features)
        self.out = nn.Linear(features, features)
        self.norm2 = nn.LayerNorm(features)
        self.up = nn.Linear(features, 4 * features)
        self.down = nn.Linear(4 * features, features)
        for item in self.modules():
            if isinstance(item, nn.LayerNorm):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)
        self.to(torch.float16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, features = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, -1).unbind(2)
        mixed = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        )
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, features))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 512, 768, dtype=torch.float16)]


def get_init_inputs() -> list[object]:
    return [768, 12]
