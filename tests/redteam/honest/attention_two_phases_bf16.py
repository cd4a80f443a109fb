"""Whole blocks of keys without a mask first, then those on the diagonal: a helper does both.

problem: h_g_attention_bf16
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def advance_blocks(
    acc,
    total,
    top,
    q,
    k_ptr,
    v_ptr,
    i,
    begin,
    end,
    K,
    D,
    DV,
    scale,
    d,
    e,
    BK: tl.constexpr,
    MASK: tl.constexpr,
):
    for start in tl.range(begin, end, BK):
        j = start + tl.arange(0, BK)
        k_in = (d < D)[:, None] & (j < K)[None, :]
        v_in = (j < K)[:, None] & (e < DV)[None, :]
        k = tl.load(k_ptr + j[None, :] * D + d[:, None], mask=k_in, other=0.0)
        v = tl.load(v_ptr + j[:, None] * DV + e[None, :], mask=v_in, other=0.0)
        score = tl.dot(q, k) * (scale * LOG2E)
        if MASK:
            score = tl.where((j[None, :] <= i[:, None]) & (j < K)[None, :], score, float("-inf"))
        new = tl.maximum(top, tl.max(score, axis=1))
        base = tl.where(new == float("-inf"), 0.0, new)
        weight = tl.exp2(score - base[:, None])
        shrink = tl.exp2(top - base)
        total = total * shrink + tl.sum(weight, axis=1)
        acc = tl.dot(weight.to(v.dtype), v, acc * shrink[:, None])
        top = new
    return acc, total, top


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    Q,
    K,
    D,
    DV,
    scale,
    BQ: tl.constexpr,
    BK: tl.constexpr,
    BD: tl.constexpr,
    BV: tl.constexpr,
):
    head = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0) * BQ
    i = first + tl.arange(0, BQ)
    d = tl.arange(0, BD)
    e = tl.arange(0, BV)
    q_in = (i < Q)[:, None] & (d < D)[None, :]
    q = tl.load(q_ptr + head * Q * D + i[:, None] * D + d[None, :], mask=q_in, other=0.0)
    top = tl.full((BQ,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BQ,), dtype=tl.float32)
    acc = tl.zeros((BQ, BV), dtype=tl.float32)
    k_ptr += head * K * D
    v_ptr += head * K * DV
    whole = tl.minimum(first, K) // BK * BK
    last = tl.minimum(first + BQ, K)
    acc, total, top = advance_blocks(
        acc, total, top, q, k_ptr, v_ptr, i, 0, whole, K, D, DV, scale, d, e, BK, False
    )
    acc, total, top = advance_blocks(
        acc, total, top, q, k_ptr, v_ptr, i, whole, last, K, D, DV, scale, d, e, BK, True
    )
    out = (acc / tl.where(total == 0.0, 1.0, total)[:, None]).to(o_ptr.dtype.element_ty)
    o_in = (i < Q)[:, None] & (e < DV)[None, :]
    tl.store(o_ptr + head * Q * DV + i[:, None] * DV + e[None, :], out, mask=o_in)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, Q, D = q.shape
        K, DV = v.shape[2:]
        o = torch.empty((batch, heads, Q, DV), dtype=q.dtype, device=q.device)
        attention_kernel[(triton.cdiv(Q, 64), batch * heads)](
            q,
            k,
            v,
            o,
            Q,
            K,
            D,
            DV,
            D**-0.5,
            BQ=64,
            BK=32,
            BD=max(16, triton.next_power_of_2(D)),
            BV=max(16, triton.next_power_of_2(DV)),
        )
        return o
