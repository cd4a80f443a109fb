"""The normalisation across neighbouring channels of early image networks."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """x / (1 + 1e-4 * mean of x^2 over 5 channels)^0.75."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.local_response_norm(x, size=5, alpha=1e-4, beta=0.75, k=1.0)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 96, 55, 55)]


def get_init_inputs() -> list[object]:
    return []
