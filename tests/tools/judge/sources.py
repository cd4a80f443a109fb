"""Problems and hand-written candidates of the judge's tests, and a builder of problems."""


def problem_of(
    body: str, inputs: str, takes: str = "x", state: str = "", init: tuple[str, str] = ("", "")
) -> str:
    """A problem that returns the last line of `body`; `state`: lines of its constructor; `init`:
    the constructor's parameters and the arguments for them."""
    *steps, result = body.split("\n")
    forward = "".join(f"        {line}\n" for line in (*steps, f"return {result}"))
    kept = "".join(f"        {line}\n" for line in state.split("\n") if line)
    parameters = ", ".join(("self", init[0])) if init[0] else "self"
    constructor = f"    def __init__({parameters}):\n        super().__init__()\n{kept}\n"
    return (
        "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n"
        f"{constructor if state else ''}    def forward(self, {takes}):\n{forward}\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\n"
        f"def get_init_inputs():\n    return [{init[1]}]\n"
    )


HEAD = """
import math

import torch
import triton
import triton.language as tl
from torch import nn

"""

NORM_PROBLEM = problem_of(
    "self.ln(x)", "torch.randn(512, 96, dtype=torch.DTYPE)",
    state="self.ln = nn.LayerNorm(features)\nself.to(torch.DTYPE)", init=("features", "96"),
)  # fmt: skip

NORM = (
    HEAD
    + """
@triton.jit
def norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n
    d = tl.where(mask, x - mean, 0.0)
    var = tl.sum(d * d, axis=0) / n
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    y = d * (1.0 / tl.sqrt(var + eps)) * w + b
    tl.store(y_ptr + row * n + cols, y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.ln = nn.LayerNorm(features)
        self.to(torch.DTYPE)

    def forward(self, x):
        x = x.contiguous()
        n = x.shape[-1]
        y = torch.empty_like(x)
        rows = x.numel() // n
        norm_kernel[(rows,)](
            x, self.ln.weight, self.ln.bias, y, n, self.ln.eps, BLOCK=triton.next_power_of_2(n)
        )
        return y
"""
)

ADD_PROBLEM = problem_of(
    "x + 2 * y", ", ".join(["torch.randn(1000, dtype=torch.DTYPE)"] * 2), takes="x, y"
)

ADD = (
    HEAD
    + """
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask)
    y = tl.load(y_ptr + i, mask=mask)
    tl.store(out_ptr + i, x + 2 * y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        add_kernel[(triton.cdiv(n, 128),)](x, y, out, n, BLOCK=128)
        return out
"""
)

SOFTMAX_PROBLEM = problem_of("torch.softmax(x, dim=-1)", "torch.randn(64, 200)")

SOFTMAX = (
    HEAD
    + """
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n + cols, e / tl.sum(e, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        softmax_kernel[(x.numel() // n,)](x, y, n, BLOCK=triton.next_power_of_2(n))
        return y
"""
)

GEMM_PROBLEM = problem_of(
    "self.linear(x)", "torch.randn(256, 192)",
    state="self.linear = nn.Linear(k, n)", init=("k, n", "192, 80"),
)  # fmt: skip

GEMM = (
    HEAD
    + """
@triton.jit
def gemm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, m, n, k,
                BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        ks = start + tl.arange(0, BK)
        x = tl.load(x_ptr + rows[:, None] * k + ks[None, :],
                    mask=(rows[:, None] < m) & (ks[None, :] < k), other=0.0)
        w = tl.load(w_ptr + cols[None, :] * k + ks[:, None],
                    mask=(cols[None, :] < n) & (ks[:, None] < k), other=0.0)
        acc += tl.dot(x, w, input_precision="tf32x3")
    bias = tl.load(b_ptr + cols, mask=cols < n, other=0.0)
    tl.store(y_ptr + rows[:, None] * n + cols[None, :], acc + bias[None, :],
             mask=(rows[:, None] < m) & (cols[None, :] < n))


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)

    def forward(self, x):
        x = x.contiguous()
        m, k = x.shape
        n = self.linear.weight.shape[0]
        y = torch.empty((m, n), device=x.device, dtype=x.dtype)
        gemm_kernel[(triton.cdiv(m, 32), triton.cdiv(n, 64))](
            x, self.linear.weight, self.linear.bias, y, m, n, k, BM=32, BN=64, BK=64
        )
        return y
"""
)
