import torch
from torch import nn
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(
    x_ptr, bias_ptr, output_ptr, n_rows, n_cols: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """add, gelu: tile by tile."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    row_mask = row < n_rows
    col = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    x = tl.load(x_ptr + row * n_cols + col, mask=row_mask, other=0.0)
    bias = tl.load(bias_ptr + col)
    add = x + bias
    gelu = add * 0.5 * (tl.erf(add * 0.7071067811865476) + 1.0)
    tl.store(output_ptr + row * n_cols + col, gelu, mask=row_mask)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x.contiguous()
        x_dim0 = x.shape[0]
        output = torch.empty((x_dim0, 8192), device=x.device, dtype=torch.float32)
        gelu_kernel[(triton.cdiv(x_dim0, 1), triton.cdiv(8192, 1024))](
            x, self.bias, output, x_dim0, n_cols=8192, BLOCK_M=1, BLOCK_N=1024, num_warps=4,
        )
        return output
