import torch
from torch import nn


class Model(nn.Module):
    """An exponential average over time: h = 0.5 * h + x."""

    def forward(self, x):
        out = [x[:, 0]]
        for t in range(1, x.shape[1]):
            out.append(0.5 * out[-1] + x[:, t])
        return torch.stack(out, dim=1)


def get_inputs():
    return [torch.randn(16, 24)]


def get_init_inputs():
    return []
