"""What is a bilinear layer, written out as a product and a sum?"""

from __future__ import annotations

import torch


def written_out_bilinear(
    left: torch.Tensor, right: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """`aten.bilinear`: sum over i, j of left[..., i] weight[k, i, j] right[..., j], plus bias[k].

    PyTorch's decompositions leave it whole. left [..., I], right [..., J], weight [K, I, J] ->
    [..., K], as one product [rows, I] [I, K J] and a sum over J.
    """
    outputs, inner, outer = weight.shape
    columns = weight.transpose(0, 1).reshape(inner, outputs * outer)
    rows = torch.matmul(left.reshape(-1, inner), columns).view(-1, outputs, outer)
    summed = (rows * right.reshape(-1, 1, outer)).sum(-1).view(*left.shape[:-1], outputs)
    return summed if bias is None else summed + bias
