"""How does a GPU do, in a few launches, what lies between a small Llama's products of matrices?

At a few hundred rows the products take microseconds, so launches and bytes are what a step costs.
Its bytes are the cache's: each row reads the keys and values that it has, once, and no others.
"""

from __future__ import annotations

import torch
import triton

from agentkernel.training.decoding.drawing import TokenSampling, sample_tokens
from agentkernel.training.decoding.kernels import (
    add_norm_kernel,
    attend_kernel,
    draw_kernel,
    gated_kernel,
)
from agentkernel.training.decoding.operations import Heads, KeyValueCache, RotaryTables

LANES = 2048
"""Elements of keys that a program holds at once: with as many of values and of sums, about 100
registers a thread, so that several programs of an SM wait for memory while another computes."""
STAGES = 2
"""How many blocks of keys and values are on their way at once."""
LOG2_E = 1.4426950408889634
WIDEST = 32768
"""Tokens of a vocabulary that a program holds in registers; a wider one is sorted by torch."""
BITS = 30
"""Halvings until a threshold among the floats from 0 to 1, 0x3F800000 bit patterns, is exact."""


class TritonOperations:
    """See Operations: the same, in one launch each."""

    def add_norm(
        self,
        residual: torch.Tensor,
        added: torch.Tensor | None,
        weight: torch.Tensor,
        epsilon: float,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        rows, width = residual.shape
        out = torch.empty(rows, width, dtype=dtype, device=residual.device)
        block = triton.next_power_of_2(width)
        add_norm_kernel[(rows,)](
            residual,
            residual if added is None else added,
            weight,
            out,
            residual.stride(0),
            0 if added is None else added.stride(0),
            epsilon,
            WIDTH=width,
            BLOCK=block,
            ADDS=added is not None,
            num_warps=min(max(block // 512, 1), 8),
        )
        return out

    def gated(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        rows, width = gate.shape
        out = torch.empty(rows, width, dtype=gate.dtype, device=gate.device)
        block = min(triton.next_power_of_2(width), 1024)
        gated_kernel[(rows, triton.cdiv(width, block))](
            gate, up, out, gate.stride(0), up.stride(0), WIDTH=width, BLOCK=block
        )
        return out

    def attend(
        self,
        heads: Heads,
        kept: KeyValueCache,
        turns: RotaryTables,
        slots: torch.Tensor,
        lengths: torch.Tensor,
    ) -> torch.Tensor:
        _, key_heads, room, size = kept.keys.shape
        rows, width = heads.query.shape
        out = torch.empty(rows, width, dtype=heads.query.dtype, device=heads.query.device)
        block_size = triton.next_power_of_2(size)
        attend_kernel[(width // size, rows)](
            *heads,
            *kept,
            *turns,
            slots,
            lengths,
            out,
            *(item.stride(0) for item in heads),
            room,
            size**-0.5 * LOG2_E,
            KEY_HEADS=key_heads,
            GROUP=width // size // key_heads,
            SIZE=size,
            BLOCK_SIZE=block_size,
            BLOCK=max(LANES // block_size, 8),
            STAGES=STAGES,
            num_warps=4,
        )
        return out

    def draw(
        self, logits: torch.Tensor, uniforms: torch.Tensor, drawing: TokenSampling
    ) -> torch.Tensor:
        rows, width = logits.shape
        if drawing.temperature == 0 or width > WIDEST:
            return sample_tokens(logits, uniforms, drawing)
        out = torch.empty(rows, dtype=torch.int64, device=logits.device)
        block = triton.next_power_of_2(width)
        draw_kernel[(rows,)](
            logits,
            uniforms,
            out,
            logits.stride(0),
            1 / drawing.temperature,
            drawing.top_p,
            WIDTH=width,
            BLOCK=block,
            NUCLEUS=drawing.top_p < 1,
            HALVINGS=BITS,
            num_warps=min(max(block // 1024, 4), 32),
        )
        return out


__all__ = ["TritonOperations"]
