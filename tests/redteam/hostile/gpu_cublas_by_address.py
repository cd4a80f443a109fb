"""Calls cuBLAS itself through ctypes with torch's own handle, below every dispatcher.

problem: gpu_linear
gate: execution
needs: gpu
"""

import ctypes
from pathlib import Path

import torch
import triton
import triton.language as tl
from torch import nn

TRANSPOSED, PLAIN = 1, 0


def loaded_cublas():
    """The library that this process has mapped already."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "libcublas.so" in line:
            return ctypes.CDLL(line.split()[-1])
    return ctypes.CDLL("libcublas.so")


@triton.jit
def add_kernel(out_ptr, bias_ptr, size, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    bias = tl.load(bias_ptr + at % cols, mask=at < size, other=0.0)
    value = tl.load(out_ptr + at, mask=at < size, other=0.0)
    tl.store(out_ptr + at, value + bias, mask=at < size)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.cublas = None

    def forward(self, x):
        x, weight = x.contiguous(), self.linear.weight
        (m, k), n = x.shape, weight.shape[0]
        handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
        if self.cublas is None:
            self.cublas = loaded_cublas()
        out = torch.empty(m, n, device=x.device)
        one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        self.cublas.cublasSgemm_v2(
            handle,
            TRANSPOSED,
            PLAIN,
            n,
            m,
            k,
            ctypes.byref(one),
            ctypes.c_void_p(weight.data_ptr()),
            k,
            ctypes.c_void_p(x.data_ptr()),
            k,
            ctypes.byref(zero),
            ctypes.c_void_p(out.data_ptr()),
            n,
        )
        size = out.numel()
        add_kernel[(triton.cdiv(size, 1024),)](out, self.linear.bias, size, n, BLOCK=1024)
        return out
