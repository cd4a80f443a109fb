"""A script of its own: TRITON_INTERPRET must be set before triton is imported."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from agentkernel.tools.apply.model import apply, counts, restore
from applied_kernels import block, example, norm_kernel

TRITON = '''import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, output_ptr, SIZE: tl.constexpr):
    """A row a program."""
    col = tl.arange(0, SIZE)
    place = tl.program_id(0) * SIZE + col
    x = tl.load(x_ptr + place)
    centred = x - tl.sum(x, axis=0) / SIZE
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / SIZE + 1e-05)
    output = centred * scale * tl.load(weight_ptr + col) + tl.load(bias_ptr + col)
    tl.store(output_ptr + place, output)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(8))
        self.bias = nn.Parameter(torch.empty(8))

    def forward(self, x):
        output = torch.empty_like(x)
        layer_norm_kernel[(x.shape[0],)](x, self.weight, self.bias, output, SIZE=8)
        return output
'''

if __name__ == "__main__":
    model, x = block(), example()
    want = model(x)
    apply(model, {"norm": norm_kernel(TRITON), "last": norm_kernel(TRITON)})
    found = model(x)
    calls = [(item.kernel, dict(item.reasons), item.off) for item in counts(model).values()]
    print(bool(torch.allclose(found, want, atol=1e-5)), calls, restore(model))
