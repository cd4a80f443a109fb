import torch
from torch import nn


class Model(nn.Module):
    """Router scores with the correction bias that is kept as a buffer and trained by hand."""

    def __init__(self, experts):
        super().__init__()
        self.register_buffer("correction", torch.zeros(experts))

    def forward(self, x):
        return torch.sigmoid(x) + self.correction


def get_inputs():
    return [torch.randn(64, 96)]


def get_init_inputs():
    return [96]
