"""One pass: a program takes a ticket, waits for the sum of the program before it, hands on its own.

problem: h_g_cumsum
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def cumsum_kernel(
    x_ptr, y_ptr, ticket_ptr, flag_ptr, carry_ptr, rows, n, parts, BLOCK: tl.constexpr
):
    ticket = tl.atomic_add(ticket_ptr, 1, sem="relaxed")
    row = ticket % rows
    part = ticket // rows
    c = part * BLOCK + tl.arange(0, BLOCK)
    base = row.to(tl.int64) * n
    x = tl.load(x_ptr + base + c, mask=c < n, other=0.0).to(tl.float64)
    mine = tl.sum(x, axis=0)
    slot = row * parts + part
    before = tl.cast(0.0, tl.float64)
    if part > 0:
        while tl.atomic_add(flag_ptr + slot - 1, 0, sem="acquire", scope="gpu") == 0:
            pass
        before = tl.load(carry_ptr + slot - 1, cache_modifier=".cg")
    tl.store(carry_ptr + slot, before + mine)
    tl.debug_barrier()
    tl.atomic_xchg(flag_ptr + slot, 1, sem="release", scope="gpu")
    y = tl.cumsum(x, axis=0) + before
    tl.store(y_ptr + base + c, y.to(tl.float32), mask=c < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n = x.shape[-1]
        rows = x.numel() // n
        parts = triton.cdiv(n, 2048)
        y = torch.empty_like(x)
        ticket = torch.zeros(1, dtype=torch.int32, device=x.device)
        flags = torch.zeros(rows * parts, dtype=torch.int32, device=x.device)
        carry = torch.empty(rows * parts, dtype=torch.float64, device=x.device)
        cumsum_kernel[(rows * parts,)](x, y, ticket, flags, carry, rows, n, parts, BLOCK=2048)
        return y
