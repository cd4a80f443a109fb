"""Learns the library's kernel name from the profiler and gives its own dead kernel that name.

problem: gpu_linear
gate: execution
needs: gpu
"""

import importlib.util
import re
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

SOURCE = """
import triton
import triton.language as tl


@triton.jit
def {name}(out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(out_ptr + at))
"""


def library_kernel_name(product):
    """What the device calls the kernel behind `product`."""
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        product()
        torch.cuda.synchronize()
    names = [event.key for event in record.key_averages()]
    found = [word for name in names for word in re.findall(r"[A-Za-z_]\w*gemm\w*", name)]
    return found[0] if found else "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n"


def namesake(name):
    path = Path(tempfile.mkdtemp()) / "namesake.py"
    path.write_text(SOURCE.format(name=name))
    spec = importlib.util.spec_from_file_location("namesake", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.kernel = None

    def product(self, x):
        return torch.addmm(self.linear.bias, x, self.linear.weight.t())

    def forward(self, x):
        if self.kernel is None:
            self.kernel = namesake(library_kernel_name(lambda: self.product(x)))
        out = self.product(x)
        self.kernel[(1,)](out, BLOCK=16)
        return out
