"""A first-order recurrence in closed form: cumulative sums of weighted inputs."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """y_t = sum over s <= t of exp(a_t - a_s) x_s with a = -cumsum(softplus(gate))."""

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        decay = -torch.cumsum(F.softplus(gate) * 0.01, dim=1)
        return torch.exp(decay) * torch.cumsum(x * torch.exp(-decay), dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 512, 2048), torch.randn(16, 512, 2048)]


def get_init_inputs() -> list[object]:
    return []
