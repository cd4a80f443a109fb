"""Half of the rows on a stream of its own, which the caller's stream waits for before it returns.

problem: h_g_chain
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def chain_sum_kernel(x_ptr, y_ptr, out_ptr, first, n, BLOCK: tl.constexpr):
    row = first + tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + c, mask=c < n, other=0.0)
        y = tl.load(y_ptr + row * n + c, mask=c < n, other=0.0)
        positive = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
        total += tl.where(c < n, positive * y + 0.5, 0.0)
    tl.store(out_ptr + row, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = None

    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        rows, n = x.shape
        out = torch.empty(rows, dtype=x.dtype, device=x.device)
        if self.side is None:
            self.side = torch.cuda.Stream(device=x.device)
        main = torch.cuda.current_stream(x.device)
        half = rows // 2
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            if half > 0:
                chain_sum_kernel[(half,)](x, y, out, 0, n, BLOCK=512)
        chain_sum_kernel[(rows - half,)](x, y, out, half, n, BLOCK=512)
        main.wait_stream(self.side)
        for tensor in (x, y, out):
            tensor.record_stream(self.side)
        return out
