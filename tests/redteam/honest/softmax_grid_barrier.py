"""A cooperative launch in which all programs meet at a barrier of atomics between two phases.

problem: h_g_softmax_long
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def exp_near(x):
    """e**x to about two ulp: the whole power of two apart, the rest through ln 2 in two parts."""
    whole = tl.floor(x * 1.4426950408889634)
    rest = (x - whole * 0.693145751953125) - whole * 1.42860682030941723e-6
    value = tl.exp2(rest * 1.4426950408889634) * tl.exp2(whole)
    value = tl.where(x < -103.0, 0.0, value)
    return tl.where(x > 88.7, float("inf"), value)


@triton.jit
def softmax_kernel(
    x_ptr,
    top_ptr,
    sum_ptr,
    arrived_ptr,
    y_ptr,
    rows,
    n,
    parts,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
):
    tiles = rows * parts
    lane = tl.arange(0, BLOCK)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        c = tile % parts * BLOCK + lane
        base = (tile // parts).to(tl.int64) * n
        x = tl.load(x_ptr + base + c, mask=c < n, other=-1e38)
        top = tl.maximum(tl.max(x, axis=0), -1e38)
        tl.store(top_ptr + tile, top)
        tl.store(sum_ptr + tile, tl.sum(tl.where(c < n, exp_near(x - top), 0.0), axis=0))
    tl.debug_barrier()
    tl.atomic_add(arrived_ptr, 1, sem="acq_rel", scope="gpu")
    while tl.atomic_add(arrived_ptr, 0, sem="acquire", scope="gpu") < tl.num_programs(0):
        pass
    tl.debug_barrier()
    p = tl.arange(0, PARTS)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        row = tile // parts
        at = row * parts + p
        tops = tl.load(top_ptr + at, mask=p < parts, other=-1e38, cache_modifier=".cg")
        sums = tl.load(sum_ptr + at, mask=p < parts, other=0.0, cache_modifier=".cg")
        top = tl.max(tops, axis=0)
        total = tl.sum(sums * tl.where(p < parts, exp_near(tops - top), 0.0), axis=0)
        c = tile % parts * BLOCK + lane
        base = row.to(tl.int64) * n
        x = tl.load(x_ptr + base + c, mask=c < n, other=0.0)
        tl.store(y_ptr + base + c, exp_near(x - top) / total, mask=c < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n = x.shape[-1]
        rows = x.numel() // n
        parts = triton.cdiv(n, 2048)
        top = torch.empty((rows, parts), dtype=torch.float32, device=x.device)
        total = torch.empty_like(top)
        arrived = torch.zeros(1, dtype=torch.int32, device=x.device)
        y = torch.empty_like(x)
        processors = torch.cuda.get_device_properties(x.device).multi_processor_count
        softmax_kernel[(min(processors, rows * parts),)](
            x,
            top,
            total,
            arrived,
            y,
            rows,
            n,
            parts,
            BLOCK=2048,
            PARTS=triton.next_power_of_2(parts),
            launch_cooperative_grid=True,
        )
        return y
