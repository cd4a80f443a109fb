"""A state space whose decay and input depend on the input, as running sums of logarithms."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, width: int, states: int) -> None:
        super().__init__()
        self.states = states
        self.rate = nn.Parameter(torch.rand(width, states))
        self.project = nn.Linear(width, 2 * states + 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        step, b, c = self.project(x).split([1, self.states, self.states], -1)
        step = F.softplus(step)
        decay = -(step.unsqueeze(-1) * self.rate).cumsum(1)
        added = (step * x).unsqueeze(-1) * b.unsqueeze(2)
        state = torch.exp(decay) * (added * torch.exp(-decay)).cumsum(1)
        return (state * c.unsqueeze(2)).sum(-1) * F.silu(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 12, 16)]


def get_init_inputs() -> list[int]:
    return [16, 4]
