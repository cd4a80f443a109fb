import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(32, 8, bias=False)

    def forward(self, x):
        p = torch.softmax(self.gate(x).float(), dim=-1)
        w, i = torch.topk(p, 2, dim=-1)
        w = w / w.sum(-1, keepdim=True)
        return w, i, torch.argsort(x[:, :4], dim=-1, stable=True, descending=True)


def get_inputs():
    return [torch.randn(40, 32)]


def get_init_inputs():
    return []
