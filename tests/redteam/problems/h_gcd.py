"""Greatest common divisors of two integer tensors."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.gcd(a, b)


def get_inputs():
    a = torch.randint(1, 5000, (20, 40), dtype=torch.int32)
    return [a, torch.randint(1, 5000, (20, 40), dtype=torch.int32)]


def get_init_inputs():
    return []
