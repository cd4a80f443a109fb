from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    features: int = 96
    eps: float = 1e-3


class Model(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm = nn.LayerNorm(cfg.features, eps=cfg.eps)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(16, 96)]


def get_init_inputs():
    return [Config()]
