import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, d=256, n=16):
        super().__init__()
        self.A_log = nn.Parameter(torch.log(torch.arange(1, n + 1).float()).repeat(d, 1))
        self.D = nn.Parameter(torch.ones(d))

    def forward(self, u, delta, B, C):
        A = -torch.exp(self.A_log)
        dA = torch.exp(torch.einsum("bld,dn->bldn", delta, A))
        dBu = torch.einsum("bld,bln,bld->bldn", delta, B, u)
        x = torch.zeros(u.shape[0], u.shape[2], A.shape[1], device=u.device, dtype=u.dtype)
        ys = []
        for i in range(u.shape[1]):
            x = dA[:, i] * x + dBu[:, i]
            ys.append(torch.einsum("bdn,bn->bd", x, C[:, i]))
        return torch.stack(ys, 1) + u * self.D


def get_inputs():
    b, length, d, n = 2, 64, 256, 16
    return [
        torch.randn(b, length, d),
        torch.rand(b, length, d) * 0.1,
        torch.randn(b, length, n),
        torch.randn(b, length, n),
    ]


def get_init_inputs():
    return []
