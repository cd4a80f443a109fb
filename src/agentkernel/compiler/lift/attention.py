"""Attention as one operator of our own in what TorchInductor is given.

PyTorch's dispatch makes two products and a softmax of `scaled_dot_product_attention` where no GPU
is at hand, and the scores would lie in memory. TorchInductor knows nothing of this operator but
the form of its result, so it stays one call whose operands lie as the module made them. Runs in
TorchInductor's process only.
"""

from __future__ import annotations

import torch

from agentkernel.compiler.attention_match import HEADS_INSIDE
from agentkernel.compiler.lift.attention_calls import AttentionForm
from agentkernel.compiler.lift.layouts import stride_order, strides_in_order

SCHEMA = "(Tensor query, Tensor key, Tensor value, Tensor? mask, Tensor? bias, str form) -> Tensor"


def broadcast(*shapes: torch.Size) -> torch.Size:
    """The shape that all of them are broadcast to."""
    found: torch.Size = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    return found


@torch.library.custom_op(
    "agentkernel::attention",
    mutates_args=(),
    schema=SCHEMA,
    tags=(torch.Tag.needs_fixed_stride_order,),
)
def fused_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
    form: str,
) -> torch.Tensor:
    """Attention of [batch, heads, length, width] of an AttentionForm in JSON; only ever traced."""
    raise NotImplementedError("attention is traced here, not computed")


@fused_attention.register_fake
def _(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
    form: str,
) -> torch.Tensor:
    """The form of the result. PyTorch's kernels for 16 bits, cuDNN's and FlashAttention, lay it out
    as `query`; the one for fp32 has the heads inside."""
    batch = broadcast(query.shape[:1], key.shape[:1], value.shape[:1])
    heads = query.shape[1:2]
    if not AttentionForm.model_validate_json(form).grouped:
        heads = broadcast(heads, key.shape[1:2], value.shape[1:2])
    shape = (*batch, *heads, query.shape[2], value.shape[3])
    half = query.dtype.itemsize == 2
    order = stride_order(query.stride()) if half else HEADS_INSIDE
    strides = strides_in_order(shape, order)
    return torch.empty_strided(shape, strides, dtype=query.dtype, device=query.device)


def whole_attention(
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
    """`aten.scaled_dot_product_attention` of [..., length, width] as one call of the operator.

    That has four dimensions; of others PyTorch itself keeps the scores in memory. Raises
    NotImplementedError with dropout, and where one of several batch dimensions is broadcast.
    """
    if dropout_p:
        raise NotImplementedError("attention with dropout draws random numbers")
    operands, rank, lead = (query, key, value), query.dim(), query.shape[:-3]
    if rank > 4:
        masked = attn_mask is not None and attn_mask.dim() > 3
        if masked or any(item.shape[:-3] != lead for item in operands):
            raise NotImplementedError(f"attention of {rank} dimensions, one of them broadcast")
        query, key, value = (item.reshape(-1, *item.shape[-3:]) for item in operands)
    elif rank < 4:
        query, key, value = (item.reshape((1,) * (4 - rank) + item.shape) for item in operands)
    form = AttentionForm(
        dtype=str(query.dtype).removeprefix("torch."),
        head_dim=query.shape[-1],
        value_dim=value.shape[-1],
        scale=scale,
        causal=is_causal,
        grouped=enable_gqa,
        mask_kind="bool" if attn_mask is not None and attn_mask.dtype == torch.bool else "add",
        empty_rows="zero",
        library=rank == 4,
    )
    told = form.model_dump_json()
    found: torch.Tensor = fused_attention(query, key, value, attn_mask, None, told)
    if rank == 4:
        return found
    return found.reshape(*lead, *found.shape[1:] if rank > 4 else found.shape[4 - rank :])
