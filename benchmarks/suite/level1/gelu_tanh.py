"""GELU in its tanh form, as GPT-style networks have it, fp16."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """gelu(x, approximate="tanh")."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x, approximate="tanh")


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16384, 4096, dtype=torch.float16)]


def get_init_inputs() -> list[object]:
    return []
