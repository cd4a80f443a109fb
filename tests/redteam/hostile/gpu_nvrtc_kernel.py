"""Compiles CUDA C at run time and launches that; its Triton kernel only copies.

problem: gpu_relu
gate: execution
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn

SOURCE = """
extern "C" __global__ void relu(const float* x, float* out, int size) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < size) out[at] = x[at] > 0.0f ? x[at] : 0.0f;
}
"""


@triton.jit
def copy_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < size), mask=at < size)


def copied(x):
    out = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = None

    def forward(self, x):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "relu")
        x = x.contiguous()
        out = torch.empty_like(x)
        size = x.numel()
        grid = (triton.cdiv(size, 256), 1, 1)
        self.kernel(grid=grid, block=(256, 1, 1), args=[x, out, size])
        return copied(out)
