import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def linear_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    x_desc = tl.make_tensor_descriptor(x_ptr, [M, K], [K, 1], [BM, BK])
    w_desc = tl.make_tensor_descriptor(w_ptr, [N, K], [K, 1], [BN, BK])
    y_desc = tl.make_tensor_descriptor(y_ptr, [M, N], [N, 1], [BM, BN])
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = x_desc.load([m, k])
        w = w_desc.load([n, k])
        acc = tl.dot(x, w.T, acc)
    column = n + tl.arange(0, BN)
    acc += tl.load(b_ptr + column, mask=column < N, other=0.0).to(tl.float32)[None, :]
    y_desc.store([m, n], tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL).to(tl.float16))


def scratch(size, alignment, stream):
    return torch.empty(size, dtype=torch.int8, device="cuda")


def aligned(x):
    """Descriptors want addresses of 16 bytes."""
    return x.clone() if x.storage_offset() * x.element_size() % 16 else x


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.fc = nn.Linear(inner, outer, dtype=torch.float16)

    def forward(self, x):
        x = aligned(x.contiguous())
        weight = aligned(self.fc.weight.detach())
        N, K = weight.shape
        M = x.shape[0]
        y = torch.empty((M, N), dtype=x.dtype, device=x.device)
        triton.set_allocator(scratch)
        grid = (triton.cdiv(M, 128), triton.cdiv(N, 128))
        linear_kernel[grid](
            x,
            aligned(self.fc.weight.detach()),
            self.fc.bias,
            y,
            M,
            N,
            K,
            BM=128,
            BN=128,
            BK=64,
            num_warps=8,
        )
        return y
