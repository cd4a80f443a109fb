"""Copy the rows of a matrix that an index vector names.

Helps: fuses with whatever is done to the rows next; alone it is a copy.
Pitfalls: random rows shorter than a 128-byte line waste bandwidth; int64 offsets. An index out of
bounds must raise, as in torch: the assertion holds under debug=True alone.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Gather rows",
    "summary": "index select: copy the rows that an index names",
    "patterns": ["gather", "index_select", "layout"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"pointwise.num_warps": "4"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit(debug=True)
def index_select_kernel(x_ptr, index_ptr, out_ptr, rows, width, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = lane < width
    row = tl.load(index_ptr + program).to(tl.int64)
    tl.device_assert((row >= 0) & (row < rows), "no such row")
    tl.store(out_ptr + program * width + lane, tl.load(x_ptr + row * width + lane, mask=mask), mask)


class Model(nn.Module):
    def forward(self, x, index):
        return x.index_select(0, index)


class ModelNew(Model):
    def forward(self, x, index):
        x, index = x.contiguous(), index.contiguous()
        rows, width = x.shape
        out = torch.empty(index.shape[0], width, dtype=x.dtype, device=x.device)
        index_select_kernel[(index.shape[0], triton.cdiv(width, 256))](
            x, index, out, rows, width, BLOCK=256, num_warps=4, sanitize_overflow=False
        )
        return out


def get_inputs():
    return [torch.randn(30, 70), torch.randint(0, 30, (13,))]
