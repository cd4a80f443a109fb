"""An RWKV-style block: token shift, exponentially decaying weighted mean, receptance."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """W (sigmoid(r) * num_t / den_t), both sums decaying by exp(-w) a step."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.rand(3, features))
        self.key = nn.Linear(features, features, bias=False)
        self.value = nn.Linear(features, features, bias=False)
        self.receptance = nn.Linear(features, features, bias=False)
        self.decay = nn.Parameter(torch.empty(features).uniform_(-3.0, 0.0))
        self.out = nn.Linear(features, features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = F.pad(x, (0, 0, 1, 0))[:, :-1]
        k, v, r = (before + (x - before) * mix for mix in self.mix.unbind(0))
        k = torch.exp(torch.clamp(self.key(k), max=10.0))
        v = self.value(v)
        keep = torch.exp(-torch.exp(self.decay))
        top = torch.zeros_like(x[:, 0])
        below = torch.zeros_like(x[:, 0])
        outputs = []
        for t in range(x.shape[1]):
            top = keep * top + k[:, t] * v[:, t]
            below = keep * below + k[:, t]
            outputs.append(top / (below + 1e-6))
        return self.out(torch.sigmoid(self.receptance(r)) * torch.stack(outputs, dim=1))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 24, 768)]


def get_init_inputs() -> list[object]:
    return [768]
