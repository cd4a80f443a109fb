"""The router of a mixture of experts: softmax, two best, renormalised."""

import torch
from torch import nn


class Model(nn.Module):
    """weights and indices of the two best experts."""

    def __init__(self, features: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(features, experts, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights, chosen = torch.topk(torch.softmax(self.router(x), dim=-1), 2, dim=-1)
        return weights / weights.sum(dim=-1, keepdim=True), chosen


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32768, 1024)]


def get_init_inputs() -> list[object]:
    return [1024, 64]
