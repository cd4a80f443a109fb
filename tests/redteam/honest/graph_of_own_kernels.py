"""Replays a CUDA graph of its own two kernels, kept by shape; inputs copied in, the result cloned.

problem: h_g_chain
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def chain_kernel(x_ptr, y_ptr, z_ptr, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < total, other=0.0)
    y = tl.load(y_ptr + place, mask=place < total, other=0.0)
    positive = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(z_ptr + place, positive * y + 0.5, mask=place < total)


@triton.jit
def sum_kernel(z_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        c = start + tl.arange(0, BLOCK)
        total += tl.load(z_ptr + row * n + c, mask=c < n, other=0.0)
    tl.store(out_ptr + row, tl.sum(total, axis=0))


class Recorded:
    """One shape's buffers and the graph over them."""

    def __init__(self, x, y):
        self.x, self.y = torch.empty_like(x), torch.empty_like(y)
        self.x.copy_(x)
        self.y.copy_(y)
        self.z = torch.empty_like(x)
        self.out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.launch()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.launch()

    def launch(self):
        total = self.x.numel()
        chain_kernel[(triton.cdiv(total, 1024),)](self.x, self.y, self.z, total, BLOCK=1024)
        sum_kernel[(self.x.shape[0],)](self.z, self.out, self.x.shape[1], BLOCK=512)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.recorded = {}

    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        key = (x.shape, y.shape, x.dtype, x.device)
        if key not in self.recorded:
            self.recorded[key] = Recorded(x, y)
        record = self.recorded[key]
        record.x.copy_(x)
        record.y.copy_(y)
        record.graph.replay()
        return record.out.clone()
