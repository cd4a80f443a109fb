"""The head of a language model with its loss at the width of a large one, bf16."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """cross_entropy(W x, target) in fp32."""

    def __init__(self, features: int, vocabulary: int) -> None:
        super().__init__()
        self.head = nn.Linear(features, vocabulary, bias=False, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.head(x).float(), target)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 4096, dtype=torch.bfloat16), torch.randint(0, 128256, (8192,))]


def get_init_inputs() -> list[object]:
    return [4096, 128256]
