import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, *, hidden=1024, scale=0.5):
        super().__init__()
        self.register_buffer("running", torch.ones(hidden))
        self.norm = nn.LayerNorm(hidden)
        self.scale = scale

    def forward(self, x, bias: torch.Tensor | None = None, *, return_stats: bool = True):
        y = self.norm(x) * self.running * self.scale
        if bias is not None:
            y = y + bias
        out = {"out": y}
        if return_stats:
            out["mean"] = x.mean(-1)
        return out


def get_inputs():
    return [torch.randn(2048, 1024)]


def get_init_inputs():
    return []
