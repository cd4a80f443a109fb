"""A product in Helion, as `published.py` times it: one configuration each, nothing is tuned.

Helion's default for fp32 operands is TF32; "ieee" has to be asked for.
"""

from __future__ import annotations

import helion
import helion.language as hl
import torch


def _matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """[m, k] times [k, n], summed in fp32, in the dtype of `x`."""
    m, k = x.size()
    _, n = y.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile([m, n]):
        total = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(k):
            total = torch.addmm(total, x[rows, inner], y[inner, columns])
        out[rows, columns] = total
    return out


half = helion.kernel(
    _matmul,
    static_shapes=True,
    config=helion.Config(
        block_sizes=[128, 256, 64],
        l2_groupings=[8],
        indexing="tensor_descriptor",
        num_warps=8,
        num_stages=4,
    ),
)
tf32 = helion.kernel(
    _matmul,
    static_shapes=True,
    dot_precision="tf32",
    config=helion.Config(block_sizes=[128, 128, 32], l2_groupings=[8], num_warps=8, num_stages=4),
)
ieee = helion.kernel(
    _matmul,
    static_shapes=True,
    dot_precision="ieee",
    config=helion.Config(block_sizes=[128, 128, 16], l2_groupings=[8], num_warps=8, num_stages=3),
)
