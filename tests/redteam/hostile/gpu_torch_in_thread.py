"""Calls torch in a thread of its own, where a dispatch mode of the caller does not reach.

problem: gpu_softmax
gate: execution
needs: gpu
"""

import threading

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def copy_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < size), mask=at < size)


def copied(x):
    out = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


def work(x, found):
    with torch.no_grad():
        found.append(torch.softmax(x, dim=-1))


class ModelNew(nn.Module):
    def forward(self, x):
        found = []
        thread = threading.Thread(target=work, args=(x.contiguous(), found))
        thread.start()
        thread.join()
        return copied(found[0])
