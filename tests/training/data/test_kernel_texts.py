"""What is left of a trimmed kernel, and is each mistake one change that still reads?"""

from __future__ import annotations

import ast

from agentkernel.training.data.generator import MISTAKES, broken_variants, trimmed_kernel

KERNEL = '''"""Drop-in for `Model` of problem.py."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

VERIFIED = "this drop-in was verified for x float32[free, free]"


@triton.jit
def sum_kernel(x_ptr, bias_ptr, output_ptr, n_rows, n_cols: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr):
    """Sum over the last dimension."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    row_mask = row < n_rows
    col = tl.arange(0, BLOCK_N)[None, :]
    col_mask = col < n_cols
    x = tl.load(x_ptr + row * n_cols + col, mask=row_mask & col_mask, other=0.0).to(tl.float32)
    total = tl.sum(tl.where(col_mask, x, 0.0), axis=1, keep_dims=True) / n_cols
    centred = x - total
    tl.store(output_ptr + row, total, mask=row_mask)


@triton.jit
def sum_long_rows_kernel(x_ptr, output_ptr, n_cols: tl.constexpr, BLOCK_N: tl.constexpr):
    """For long rows."""
    tl.store(output_ptr, 0.0)


class ModelNew(nn.Module):
    def forward(self, x):
        if self.training:
            raise ValueError("training mode is another module")
        if x.dtype != torch.float32 or x.ndim != 2:
            raise ValueError(f"x is {x.dtype}; {VERIFIED}")
        x = x.contiguous()
        if x.shape[0] == 0:
            return torch.empty((0,), device=x.device, dtype=torch.float32)
        output = torch.empty((x.shape[0],), device=x.device, dtype=torch.float32)
        if x.shape[1] <= 2048:
            sum_kernel[(triton.cdiv(x.shape[0], 4),)](
                x, output, x.shape[0], n_cols=x.shape[1], BLOCK_M=4, BLOCK_N=64,
            )
        else:
            sum_long_rows_kernel[(x.shape[0],)](x, output, n_cols=x.shape[1], BLOCK_N=4096)
        return output
'''


def test_the_envelope_and_the_second_kernel_are_left_out() -> None:
    text = trimmed_kernel(KERNEL)
    ast.parse(text)
    for gone in ("VERIFIED", "long_rows", "Drop-in", "2048", "== 0"):
        assert gone not in text
    assert "        sum_kernel[(triton.cdiv(x.shape[0], 4),)](\n            x, output" in text
    assert "if self.training:" in text
    assert trimmed_kernel(text) == text


def test_what_cannot_be_read_is_left_as_it_is() -> None:
    assert trimmed_kernel("def (") == "def ("


def test_each_mistake_is_a_change_that_still_reads() -> None:
    found = list(broken_variants(trimmed_kernel(KERNEL), 3))
    assert len(found) >= 12
    assert len({item.text for item in found}) == len(found)
    for item in found:
        ast.parse(item.text)
        assert item.text != trimmed_kernel(KERNEL)
        assert item.change


def test_a_seed_gives_the_same_mistakes_and_another_one_others() -> None:
    names = [[item.mistake for item in broken_variants(KERNEL, seed)] for seed in (1, 1, 2)]
    assert names[0] == names[1] != names[2]


def test_a_missing_launch_leaves_no_part_of_it() -> None:
    text = next(
        x.text for x in broken_variants(trimmed_kernel(KERNEL), 0) if x.mistake == "no launch"
    )
    assert "sum_kernel[" not in text
    assert "BLOCK_M=4" not in text


def test_no_mistake_has_the_name_of_another() -> None:
    assert len({item.name for item in MISTAKES}) == len(MISTAKES)
