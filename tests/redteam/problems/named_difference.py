"""The difference of two tensors that a dictionary names."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, batch):
        return batch["query"] - batch["key"]


def get_inputs():
    return [{"query": torch.randn(32, 64), "key": torch.randn(32, 64)}]


def get_init_inputs():
    return []
