"""A projection onto the simplex: sort, cumulative sum, threshold."""

import torch
from torch import nn


class Model(nn.Module):
    """max(x - tau, 0) with the tau that makes the row sum to 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ordered = torch.sort(x, dim=-1, descending=True).values
        place = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype)
        above = torch.cumsum(ordered, dim=-1) - 1
        count = (place * ordered > above).sum(dim=-1, keepdim=True)
        tau = torch.gather(above, -1, count - 1) / count
        return torch.clamp(x - tau, min=0.0)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 1000)]


def get_init_inputs() -> list[object]:
    return []
