"""Multiplies bfloat16 activations with weights of eight bits, a scale for each 32 of them.

problem: weights_in_bytes
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def pack_kernel(w_ptr, q_ptr, s_ptr, total, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    group = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    i = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    w = tl.load(w_ptr + i, mask=i < total, other=0.0).to(tl.float32)
    scale = tl.max(tl.abs(w), axis=1) / 127.0 + 1e-30
    q = w / scale[:, None]
    q = tl.where(q >= 0, q + 0.5, q - 0.5).to(tl.int8)
    tl.store(q_ptr + i, q, mask=i < total)
    tl.store(s_ptr + group, scale, mask=group * GROUP < total)


@triton.jit
def linear_kernel(
    x_ptr, q_ptr, s_ptr, y_ptr, m, n, k, GROUP: tl.constexpr, M: tl.constexpr, N: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * M + tl.arange(0, M)
    cols = tl.program_id(1).to(tl.int64) * N + tl.arange(0, N)
    total = tl.zeros([M, N], dtype=tl.float32)
    for start in range(0, k, GROUP):
        inner = start + tl.arange(0, GROUP)
        x = tl.load(
            x_ptr + rows[:, None] * k + inner[None, :],
            mask=(rows[:, None] < m) & (inner[None, :] < k),
            other=0.0,
        )
        place = cols[None, :] * k + inner[:, None]
        inside = (cols[None, :] < n) & (inner[:, None] < k)
        q = tl.load(q_ptr + place, mask=inside, other=0).to(tl.float32)
        s = tl.load(s_ptr + place // GROUP, mask=inside, other=0.0)
        total = tl.dot(x.to(tl.float32), q * s, total, input_precision="ieee")
    y = rows[:, None] * n + cols[None, :]
    tl.store(y_ptr + y, total.to(tl.bfloat16), mask=(rows[:, None] < m) & (cols[None, :] < n))


class ModelNew(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.linear = nn.Linear(inside, outside, bias=False, dtype=torch.bfloat16)

    def forward(self, x):
        w = self.linear.weight.contiguous()
        shape, (n, k) = x.shape[:-1], w.shape
        x = x.reshape(-1, k).contiguous()
        m, total = x.shape[0], w.numel()
        q = torch.empty(w.shape, dtype=torch.int8, device=w.device)
        groups = triton.cdiv(total, 32)
        s = torch.empty(groups, dtype=torch.float32, device=w.device)
        y = torch.empty((m, n), dtype=x.dtype, device=x.device)
        if m:
            pack_kernel[(triton.cdiv(groups, 64),)](w, q, s, total, GROUP=32, BLOCK=64)
            linear_kernel[(triton.cdiv(m, 64), triton.cdiv(n, 64))](
                x, q, s, y, m, n, k, GROUP=32, M=64, N=64
            )
        return y.view(*shape, n)
