"""The eight largest of each row as weights that sum to one, and their places."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        values, places = torch.topk(x, 8, dim=-1)
        return torch.softmax(values, dim=-1), places


def get_inputs():
    return [torch.randn(32, 48)]
