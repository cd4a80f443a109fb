"""What is attention, written out as two products and a softmax?"""

from __future__ import annotations

import math

import torch


def written_out_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """softmax(query key^T scale + mask) value over the last two dimensions, [..., length, width].

    As `aten.scaled_dot_product_attention` without dropout; rows that are masked out altogether give
    zeros there and here. Raises NotImplementedError with dropout.
    """
    if dropout_p:
        raise NotImplementedError("attention with dropout draws random numbers")
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (item.repeat_interleave(groups, -3) for item in (key, value))
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.matmul(query, key.transpose(-2, -1)) * factor
    if is_causal:
        rows = torch.arange(scores.shape[-2], device=scores.device)
        columns = torch.arange(scores.shape[-1], device=scores.device)
        attn_mask = columns.unsqueeze(0) <= rows.unsqueeze(1)
    if attn_mask is None:
        return torch.matmul(torch.softmax(scores, -1), value)
    if attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(attn_mask.logical_not(), -math.inf)
    else:
        scores = scores + attn_mask
    weights = torch.softmax(scores, -1)
    if not is_causal:
        empty = (scores == -math.inf).all(-1, keepdim=True)
        weights = weights.masked_fill(empty, 0.0)
    return torch.matmul(weights, value)
