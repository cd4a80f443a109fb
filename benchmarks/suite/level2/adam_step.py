"""One step of Adam on a flat parameter."""

import torch
from torch import nn


class Model(nn.Module):
    """new first moment, second moment and parameter."""

    def forward(
        self,
        parameter: torch.Tensor,
        gradient: torch.Tensor,
        first: torch.Tensor,
        second: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second.abs() + 0.001 * gradient * gradient
        step = (first / 0.19) / (torch.sqrt(second / 0.002) + 1e-8)
        return first, second, parameter * (1 - 1e-5) - 1e-3 * step


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16777259) for _ in range(4)]


def get_init_inputs() -> list[object]:
    return []
