import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, v=30000, d=768):
        super().__init__()
        self.tok = nn.Embedding(v, d, padding_idx=0)
        self.pos = nn.Embedding(512, d)
        self.ln = nn.LayerNorm(d)

    def forward(self, ids):
        p = torch.arange(ids.shape[1], device=ids.device)
        return self.ln(self.tok(ids) + self.pos(p))


def get_inputs():
    return [torch.randint(0, 30000, (16, 512))]


def get_init_inputs():
    return []
