"""A selective state-space block: causal convolution, input-dependent recurrence, gate."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """W (scan(silu(conv(x))) * silu(z)), the recurrence step by step over 24 tokens."""

    def __init__(self, features: int, states: int, rank: int) -> None:
        super().__init__()
        self.states, self.rank = states, rank
        self.enter = nn.Linear(features, 2 * features, bias=False)
        self.conv = nn.Conv1d(features, features, 4, groups=features, padding=3)
        self.select = nn.Linear(features, rank + 2 * states, bias=False)
        self.step = nn.Linear(rank, features)
        self.log_a = nn.Parameter(torch.empty(features, states).uniform_(-1.0, 1.5))
        self.skip = nn.Parameter(torch.randn(features))
        self.leave = nn.Linear(features, features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.shape[1]
        u, z = self.enter(x).chunk(2, dim=-1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., :tokens].transpose(1, 2))
        low, b, c = self.select(u).split((self.rank, self.states, self.states), dim=-1)
        delta = F.softplus(self.step(low))[..., None]
        decay = torch.exp(-delta * torch.exp(self.log_a))
        drive = delta * b[:, :, None, :] * u[..., None]
        state = torch.zeros_like(drive[:, 0])
        outputs = []
        for t in range(tokens):
            state = decay[:, t] * state + drive[:, t]
            outputs.append((state * c[:, t, None, :]).sum(dim=-1))
        y = torch.stack(outputs, dim=1) + u * self.skip
        return self.leave(y * F.silu(z))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 24, 768)]


def get_init_inputs() -> list[object]:
    return [768, 16, 48]
