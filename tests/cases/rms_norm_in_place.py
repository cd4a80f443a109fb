import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(96, dtype=torch.bfloat16))

    def forward(self, x, residual):
        residual.add_(x)
        h = residual.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (h * (1.0 + self.weight.float())).to(x.dtype), residual


def get_inputs():
    return [torch.randn(33, 96, dtype=torch.bfloat16), torch.randn(33, 96, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
