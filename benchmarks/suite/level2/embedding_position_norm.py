"""Token, position and type embeddings summed and normalised."""

import torch
from torch import nn


class Model(nn.Module):
    """layer_norm(token[ids] + position + kind[types])."""

    def __init__(self, vocabulary: int, length: int, features: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, features)
        self.position = nn.Parameter(torch.randn(length, features))
        self.kind = nn.Embedding(2, features)
        self.norm = nn.LayerNorm(features)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.2)

    def forward(self, ids: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        return self.norm(self.token(ids) + self.position + self.kind(types))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randint(0, 30522, (64, 512)), torch.randint(0, 2, (64, 512))]


def get_init_inputs() -> list[object]:
    return [30522, 512, 768]
