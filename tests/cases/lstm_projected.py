import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.r = nn.LSTM(16, 20, num_layers=2, batch_first=True, proj_size=12, bidirectional=True)

    def forward(self, x):
        y, (h, c) = self.r(x)
        return y, h, c


def get_inputs():
    return [torch.randn(3, 7, 16)]


def get_init_inputs():
    return []
