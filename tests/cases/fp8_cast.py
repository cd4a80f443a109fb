import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        s = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-4) / 448.0
        q = (x / s).to(torch.float8_e4m3fn)
        return q.to(torch.float32) * s, s


def get_inputs():
    return [torch.randn(30, 128)]


def get_init_inputs():
    return []
