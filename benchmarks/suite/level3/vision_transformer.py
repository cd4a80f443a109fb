"""A small vision transformer: patches, class token, four blocks, classifier."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """A pre-norm encoder block."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(features)
        self.qkv = nn.Linear(features, 3 * features)
        self.out = nn.Linear(features, features)
        self.norm2 = nn.LayerNorm(features)
        self.up = nn.Linear(features, 4 * features)
        self.down = nn.Linear(4 * features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            item.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for item in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    """Logits of pictures."""

    def __init__(self, features: int, heads: int, depth: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, features, 16, stride=16)
        self.start = nn.Parameter(torch.randn(1, 1, features) * 0.2)
        self.position = nn.Parameter(torch.randn(1, 197, features) * 0.2)
        self.blocks = nn.ModuleList(Block(features, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(features)
        self.head = nn.Linear(features, classes)
        for item in self.modules():
            if isinstance(item, nn.LayerNorm):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat((self.start.expand(x.shape[0], -1, -1), tokens), dim=1) + self.position
        for block in self.blocks:
            tokens = block(tokens)
        return self.head(self.norm(tokens)[:, 0])


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 3, 224, 224)]


def get_init_inputs() -> list[object]:
    return [384, 6, 4, 1000]
