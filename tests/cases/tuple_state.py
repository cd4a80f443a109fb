import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, i=512, h=512):
        super().__init__()
        self.ih = nn.Linear(i, 4 * h)
        self.hh = nn.Linear(h, 4 * h)

    def forward(self, x, state):
        h, c = state
        g = self.ih(x) + self.hh(h)
        i, f, o, u = g.chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (h, c)


def get_inputs():
    return [torch.randn(256, 512), (torch.randn(256, 512), torch.randn(256, 512))]


def get_init_inputs():
    return []
