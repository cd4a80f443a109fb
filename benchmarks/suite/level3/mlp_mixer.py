"""A mixer block: one feed-forward part over the tokens, one over the channels."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """x + mix(norm(x)^T)^T, then + mix(norm(.))."""

    def __init__(self, tokens: int, features: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(features)
        self.token_up = nn.Linear(tokens, 2 * tokens)
        self.token_down = nn.Linear(2 * tokens, tokens)
        self.norm2 = nn.LayerNorm(features)
        self.up = nn.Linear(features, 4 * features)
        self.down = nn.Linear(4 * features, features)
        for item in self.modules():
            if isinstance(item, nn.LayerNorm):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        crossed = self.norm1(x).transpose(1, 2)
        x = x + self.token_down(F.gelu(self.token_up(crossed))).transpose(1, 2)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 196, 512)]


def get_init_inputs() -> list[object]:
    return [196, 512]
