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


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = None

    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        rows, n = x.shape
        if self.side is None:
            self.side = torch.cuda.Stream(device=x.device)
        main = torch.cuda.current_stream(x.device)
        z = torch.empty_like(x)
        out = torch.empty(rows, dtype=x.dtype, device=x.device)
        given = torch.cuda.Event()
        given.record(main)
        self.side.wait_event(given)
        with torch.cuda.stream(self.side):
            chain_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, z, x.numel(), BLOCK=1024)
            done = torch.cuda.Event()
            done.record(self.side)
        main.wait_event(done)
        for tensor in (x, y, z):
            tensor.record_stream(self.side)
        sum_kernel[(rows,)](z, out, n, BLOCK=512)
        return out
