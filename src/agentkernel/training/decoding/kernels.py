"""Triton kernels of a Llama's decoding step, and their launches.

At a few hundred rows the matrix products take microseconds, so launches and bytes are what a
step costs. Its bytes are the cache's: each row reads its own keys and values once, and no
others.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from agentkernel.training.decoding.llama import (
    Heads,
    KeyValueCache,
    RotaryTables,
    TokenSampling,
    TorchOperations,
    sample_tokens,
)

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"


@triton.jit
def add_norm_kernel(
    residual_ptr,
    added_ptr,
    weight_ptr,
    out_ptr,
    residual_stride,
    added_stride,
    epsilon,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    ADDS: tl.constexpr,
):
    """One program a row."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < WIDTH
    place = residual_ptr + row * residual_stride + at
    held = tl.load(place, mask=inside, other=0.0)
    if ADDS:
        added = tl.load(added_ptr + row * added_stride + at, mask=inside, other=0.0)
        held = (held.to(tl.float32) + added.to(tl.float32)).to(residual_ptr.dtype.element_ty)
        tl.store(place, held, mask=inside)
    wide = held.to(tl.float32)
    normed = wide * tl.rsqrt(tl.sum(wide * wide, 0) / WIDTH + epsilon)
    # Rounded where the model rounds.
    normed = normed.to(residual_ptr.dtype.element_ty).to(tl.float32)
    weight = tl.load(weight_ptr + at, mask=inside, other=0.0).to(tl.float32)
    found = (weight * normed).to(residual_ptr.dtype.element_ty)
    tl.store(out_ptr + row * WIDTH + at, found.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def gated_kernel(
    gate_ptr, up_ptr, out_ptr, gate_stride, up_stride, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """One program a row and BLOCK of its columns."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < WIDTH
    gate = tl.load(gate_ptr + row * gate_stride + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + at, mask=inside, other=0.0).to(tl.float32)
    found = gate * tl.sigmoid(gate) * up
    tl.store(out_ptr + row * WIDTH + at, found.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _turned(heads_ptr, cosines_ptr, sines_ptr, at, inside, HALF: tl.constexpr):
    """A head turned by its place's angles, float32: each half beside the other."""
    low = at < HALF
    other = tl.where(low, at + HALF, at - HALF)
    head = tl.load(heads_ptr + at, mask=inside, other=0.0).to(tl.float32)
    beside = tl.load(heads_ptr + other, mask=inside, other=0.0).to(tl.float32)
    angle = tl.where(low, at, at - HALF)
    cosine = tl.load(cosines_ptr + angle, mask=inside, other=0.0)
    sine = tl.load(sines_ptr + angle, mask=inside, other=0.0)
    return head * cosine + tl.where(low, -beside, beside) * sine


@triton.jit
def attend_kernel(
    query_ptr,
    key_ptr,
    value_ptr,
    keys_ptr,
    values_ptr,
    cosines_ptr,
    sines_ptr,
    slots_ptr,
    lengths_ptr,
    out_ptr,
    query_stride,
    key_stride,
    value_stride,
    room,
    scale,
    KEY_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One program a query head and row: heads that share keys run side by side, so that all but the
    first find them in the L2 cache.

    BLOCK lanes go through the row's past, each with a softmax of its own (greatest score, sum,
    weighted values); only at the end are they made one. So nothing but a score's sum over a head
    crosses threads meanwhile. All of them begin at the new token's score, which none has to guard.
    """
    head = tl.program_id(0)
    row = tl.program_id(1)
    slot = tl.load(slots_ptr + row).to(tl.int64)
    length = tl.load(lengths_ptr + slot)
    at = tl.arange(0, BLOCK_SIZE)
    inside = at < SIZE
    HALF: tl.constexpr = SIZE // 2
    key_head = head // GROUP
    kept = (slot * KEY_HEADS + key_head) * room * SIZE
    cosines_ptr += length * HALF
    sines_ptr += length * HALF

    query_ptr += row.to(tl.int64) * query_stride + head * SIZE
    key_ptr += row.to(tl.int64) * key_stride + key_head * SIZE
    value_ptr += row.to(tl.int64) * value_stride + key_head * SIZE
    query = _turned(query_ptr, cosines_ptr, sines_ptr, at, inside, HALF)
    query = query.to(keys_ptr.dtype.element_ty).to(tl.float32) * scale
    key = _turned(key_ptr, cosines_ptr, sines_ptr, at, inside, HALF).to(keys_ptr.dtype.element_ty)
    value = tl.load(value_ptr + at, mask=inside, other=0.0)
    if head % GROUP == 0:
        tl.store(keys_ptr + kept + length * SIZE + at, key, mask=inside)
        tl.store(values_ptr + kept + length * SIZE + at, value, mask=inside)

    # Scores are in powers of two: `scale` holds the logarithm's base.
    own = tl.sum(query * key.to(tl.float32), 0)
    most = tl.zeros([BLOCK], tl.float32) + own
    total = tl.zeros([BLOCK], tl.float32)
    summed = tl.zeros([BLOCK, BLOCK_SIZE], tl.float32)
    worker_process = tl.arange(0, BLOCK)
    places = worker_process[:, None] * SIZE + at[None, :]
    keys_ptr += kept
    values_ptr += kept
    for start in tl.range(0, length, BLOCK, num_stages=STAGES):
        past = start + worker_process < length
        mask = past[:, None] & inside[None, :]
        keys = tl.load(keys_ptr + start * SIZE + places, mask=mask, other=0.0)
        values = tl.load(values_ptr + start * SIZE + places, mask=mask, other=0.0)
        score = tl.sum(query[None, :] * keys.to(tl.float32), 1)
        score = tl.where(past, score, float("-inf"))
        greater = tl.maximum(most, score)
        before = tl.exp2(most - greater)
        weight = tl.exp2(score - greater)
        total = total * before + weight
        summed = summed * before[:, None] + weight[:, None] * values.to(tl.float32)
        most = greater

    greatest = tl.max(most, 0)
    share = tl.exp2(most - greatest)
    first = tl.exp2(own - greatest)
    whole = tl.sum(total * share, 0) + first
    found = (tl.sum(summed * share[:, None], 0) + first * value.to(tl.float32)) / whole
    out = out_ptr + (row.to(tl.int64) * KEY_HEADS * GROUP + head) * SIZE + at
    tl.store(out, found.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def draw_kernel(
    logits_ptr,
    uniforms_ptr,
    out_ptr,
    logits_stride,
    sharpness,
    top_p,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    NUCLEUS: tl.constexpr,
    HALVINGS: tl.constexpr,
):
    """One program a row. Nothing is sorted: floats that are not negative are in the order of their
    bits, so the least likely token of the nucleus is found by halving, exactly."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    logits = tl.load(logits_ptr + row * logits_stride + at, mask=at < WIDTH, other=float("-inf"))
    wide = logits.to(tl.float32) * sharpness
    likely = tl.exp(wide - tl.max(wide, 0))
    if NUCLEUS:
        bits = likely.to(tl.int32, bitcast=True)
        wanted = top_p * tl.sum(likely, 0)
        low = tl.full((), 0, tl.int32)
        high = low + 0x3F800001
        for _ in range(HALVINGS):
            middle = (low + high) // 2
            enough = tl.sum(tl.where(bits >= middle, likely, 0.0), 0) >= wanted
            low = tl.where(enough, middle, low)
            high = tl.where(enough, high, middle)
        likely = tl.where(bits >= low, likely, 0.0)
    summed = tl.cumsum(likely, 0)
    uniform = tl.load(uniforms_ptr + row)
    there = likely > 0
    passed = there & (summed > uniform * tl.max(summed, 0))
    # Rounding may leave none: then it is the last that can be.
    last = tl.max(tl.where(there, at, 0), 0)
    tl.store(out_ptr + row, tl.min(tl.where(passed, at, last), 0).to(tl.int64))


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


class TritonOperations(TorchOperations):
    """The same, in one launch each."""

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
