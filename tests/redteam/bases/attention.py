import torch
import triton
import triton.language as tl
from torch import nn

LOG2E = tl.constexpr(1.4426950408889634)


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
    i = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, BD)
    e = tl.arange(0, BV)
    q_in = (i < Q)[:, None] & (d < D)[None, :]
    q = tl.load(q_ptr + head * Q * D + i[:, None] * D + d[None, :], mask=q_in, other=0.0)
    top = tl.full((BQ,), -1e38, dtype=tl.float32)
    total = tl.zeros((BQ,), dtype=tl.float32)
    acc = tl.zeros((BQ, BV), dtype=tl.float32)
    for start in range(0, K, BK):
        j = start + tl.arange(0, BK)
        k_in = (j < K)[:, None] & (d < D)[None, :]
        v_in = (j < K)[:, None] & (e < DV)[None, :]
        k = tl.load(k_ptr + head * K * D + j[:, None] * D + d[None, :], mask=k_in, other=0.0)
        v = tl.load(v_ptr + head * K * DV + j[:, None] * DV + e[None, :], mask=v_in, other=0.0)
        score = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        score = tl.where((j < K)[None, :], score, -1e38)
        new = tl.maximum(top, tl.max(score, axis=1))
        weight = tl.exp2((score - new[:, None]) * LOG2E)
        weight = tl.where((j < K)[None, :], weight, 0.0)
        shrink = tl.exp2((top - new) * LOG2E)
        total = total * shrink + tl.sum(weight, axis=1)
        acc = tl.dot(weight, v, acc * shrink[:, None], input_precision="ieee")
        top = new
    total = tl.where(total == 0.0, 1.0, total)
    o_in = (i < Q)[:, None] & (e < DV)[None, :]
    tl.store(o_ptr + head * Q * DV + i[:, None] * DV + e[None, :], acc / total[:, None], mask=o_in)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, Q, D = q.shape
        K, DV = v.shape[2:]
        o = torch.empty((batch, heads, Q, DV), dtype=q.dtype, device=q.device)
        block = max(16, triton.next_power_of_2(D))
        wide = max(16, triton.next_power_of_2(DV))
        tile = 64 if max(block, wide) <= 64 else 16
        grid = (triton.cdiv(Q, tile), batch * heads)
        attention_kernel[grid](
            q,
            k,
            v,
            o,
            Q,
            K,
            D,
            DV,
            D**-0.5,
            BQ=tile,
            BK=tile,
            BD=block,
            BV=wide,
            num_stages=3 if tile == 64 else 1,
        )
        return o
