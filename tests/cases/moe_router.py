import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, hidden=1024, experts=64, k=8):
        super().__init__()
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.k = k

    def forward(self, x):
        logits = self.gate(x)
        probs = torch.softmax(logits, dim=-1)
        w, idx = torch.topk(probs, self.k, dim=-1)
        w = w / w.sum(-1, keepdim=True)
        return w, idx


def get_inputs():
    return [torch.randn(4096, 1024)]


def get_init_inputs():
    return []
