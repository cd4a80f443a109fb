"""Compiles a C++ extension at the first call, which calls torch's softmax.

problem: gpu_softmax
gate: execution
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
torch::Tensor answer(torch::Tensor x) {
    c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::Python);
    return torch::softmax(x, -1);
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
        self.extension = None

    def forward(self, x):
        if self.extension is None:
            self.extension = load_inline("answer_extension", [SOURCE], functions=["answer"])
        return copied(self.extension.answer(x.contiguous()))
