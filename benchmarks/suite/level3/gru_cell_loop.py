"""A gated recurrent unit written out, 16 steps, with a readout of the last state."""

import torch
from torch import nn


class Model(nn.Module):
    """W h_T for h_t = (1 - z) n + z h."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.x = nn.Linear(features, 3 * hidden)
        self.h = nn.Linear(hidden, 3 * hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inputs = self.x(x)
        h = torch.zeros_like(inputs[:, 0, : self.h.in_features])
        for t in range(x.shape[1]):
            xr, xz, xn = inputs[:, t].chunk(3, dim=-1)
            hr, hz, hn = self.h(h).chunk(3, dim=-1)
            z = torch.sigmoid(xz + hz)
            h = (1 - z) * torch.tanh(xn + torch.sigmoid(xr + hr) * hn) + z * h
        return self.head(h)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 16, 128)]


def get_init_inputs() -> list[object]:
    return [128, 384, 10]
