"""Hand-written problems and candidates for the compile tests; read as text, some made wrong."""

LAYERNORM_PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.LayerNorm(n)

    def forward(self, x):
        return self.norm(x)

def get_inputs():
    return [torch.randn(4096, 8192)]

def get_init_inputs():
    return [8192]
"""

LAYERNORM = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def rows(x, y, weight, bias, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < N
    value = tl.load(x + row * N + column, mask=inside, other=0.0)
    mean = tl.sum(value, 0) / N
    centred = tl.where(inside, value - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / N + eps)
    out = centred * scale * tl.load(weight + column, mask=inside)
    tl.store(y + row * N + column, out + tl.load(bias + column, mask=inside), mask=inside)

class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.LayerNorm(n)

    def forward(self, x):
        y = torch.empty_like(x)
        n = x.shape[-1]
        rows[(x.numel() // n,)](
            x, y, self.norm.weight, self.norm.bias, n, self.norm.eps, BLOCK=8192, num_warps=8
        )
        return y
"""

GEMM = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    left = a + rows[:, None] * K + inner[None, :]
    right = b + columns[None, :] * K + inner[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BK
        right += BK
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(c.dtype.element_ty))

class ModelNew(nn.Module):
    def forward(self, a, b):
        m, k = a.shape
        n = b.shape[0]
        c = torch.empty((m, n), dtype=a.dtype, device=a.device)
        product[lambda meta: (m // meta["BM"], n // meta["BN"])](
            a, b, c, m, n, k, BM=128, BN=128, BK=64, num_warps=8, num_stages=3
        )
        return c
"""

FOREIGN = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.autotune(
    configs=[triton.Config({"BLOCK": 256}, num_warps=2), triton.Config({"BLOCK": 512})],
    key=["N"],
)
@triton.heuristics({"EVEN": lambda args: args["N"] % args["BLOCK"] == 0})
@triton.jit
def twice(x, y, N, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < N), mask=at < N)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64))

    def forward(self, x):
        assert x.is_cuda
        count = torch.cuda.get_device_properties(x.device).multi_processor_count
        driver = triton.runtime.driver.active.utils.get_device_properties(0)
        assert driver["multiprocessor_count"] == count
        y = torch.empty(x.shape, device="cuda", dtype=x.dtype)
        zeros = torch.zeros(count, device="cuda")
        with torch.cuda.device(0):
            twice[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
            twice[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](y, x, x.numel())
        return (y.view(-1, 64) @ self.weight).relu()
"""
