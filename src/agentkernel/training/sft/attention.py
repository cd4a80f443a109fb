"""How does each document of a packed row see itself alone, without a mask of row times row?

TRL packs short rows end to end (best fit decreasing, arXiv 2404.10830) and says where each begins
(`cu_seq_lens_q`). Only the flash-attn package's kernels read that: transformers' own sdpa builds a
mask of all tokens of a batch by all of them. Here the documents go to torch's own varlen kernel on
a GPU in half precision, and one after the other to sdpa elsewhere. Both are exact.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

if TYPE_CHECKING:
    from torch import nn

NAME = "agentkernel_documents"
"""What a model's configuration calls it while it is trained; no saved model names it."""
HALF = (torch.float16, torch.bfloat16)
AMPERE = (8, 0)
"""The first compute capability that flash attention runs on (Dao, arXiv 2307.08691)."""


def register_attention() -> str:
    """Make it known to transformers; gives its name."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attend)
    return NAME


@contextmanager
def without_cudnn_attention() -> Iterator[None]:
    """Attention under a mask by any of torch's own kernels but cuDNN's, whose backward on Hopper
    gives nan for one width in 128 (pytorch issue 196678; torch 2.11 to 2.13 prefer it there)."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    sound = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(sound):
        yield


def attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    cu_seq_lens_q: torch.Tensor | None = None,
    max_length_q: int | None = None,
    **others: object,
) -> tuple[torch.Tensor, None]:
    """Causal attention inside each document.

    `query` [1, heads, tokens, size], `key` and `value` [1, key heads, tokens, size];
    `cu_seq_lens_q` int32 [documents + 1], where each begins and the last ends; None: one document
    a row. Gives [1, tokens, heads, size], as transformers' attention functions do.
    """
    assert attention_mask is None, "packed rows have no padding"
    if cu_seq_lens_q is None:
        return _one(query, key, value, scaling, dropout).transpose(1, 2), None
    half = _half(query)
    if half is not None and _has_flash(query) and max_length_q is not None and dropout == 0.0:
        query, key, value = (item.to(half) for item in (query, key, value))
        return _varlen(query, key, value, cu_seq_lens_q, max_length_q, scaling)[None], None
    ends = cu_seq_lens_q.tolist()
    parts = [
        _one(
            query[:, :, begin:end],
            key[:, :, begin:end],
            value[:, :, begin:end],
            scaling,
            dropout,
        )
        for begin, end in pairwise(ends)
    ]
    return torch.cat(parts, dim=2).transpose(1, 2), None


def _one(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float | None,
    dropout: float,
) -> torch.Tensor:
    return scaled_dot_product_attention(
        query,
        key,
        value,
        dropout_p=dropout,
        is_causal=True,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def _half(query: torch.Tensor) -> torch.dtype | None:
    """The 16-bit type to compute in: the tensor's own, or autocast's, which knows sdpa but not the
    varlen kernel (and the rotation of queries leaves them in fp32). None: all 32 bits."""
    if query.dtype in HALF:
        return query.dtype
    if not torch.is_autocast_enabled(query.device.type):
        return None
    wanted = torch.get_autocast_dtype(query.device.type)
    return wanted if wanted in HALF else None


def _has_flash(query: torch.Tensor) -> bool:
    return query.is_cuda and _is_ampere(query.device.index or 0)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _is_ampere(gpu: int) -> bool:
    return torch.cuda.get_device_capability(gpu) >= AMPERE


def _varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    ends: torch.Tensor,
    longest: int,
    scaling: float | None,
) -> torch.Tensor:
    """[tokens, heads, size] by torch's flash kernel for documents of different lengths."""
    from torch.nn.attention.varlen import varlen_attn

    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (item.repeat_interleave(groups, dim=1) for item in (key, value))
    size = query.shape[-1]
    room = -size % 8
    # The kernel divides by the root of the size that it sees; what a model scales by is made up.
    factor = 1.0 if scaling is None and not room else _factor(size, size + room, scaling)
    query = query if factor == 1.0 else query * factor
    # Not item[0], whose backward fills a whole tensor with zeros; nor padding by 0, which copies.
    query, key, value = (item.squeeze(0).transpose(0, 1) for item in (query, key, value))
    if room:
        query, key, value = (pad(item, (0, room)) for item in (query, key, value))
    causal: dict[str, Any] = {"window_size": (-1, 0)} if _has_window() else {"is_causal": True}
    found = varlen_attn(query, key, value, ends, ends, longest, longest, **causal)
    assert isinstance(found, torch.Tensor)
    return found[..., :size]


def _factor(size: int, padded: int, scaling: float | None) -> float:
    wanted = size**-0.5 if scaling is None else scaling
    factor = wanted * padded**0.5
    return 1.0 if math.isclose(factor, 1.0) else factor


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _has_window() -> bool:
    """Torch before 2.11 asked whether it is causal; since then how far to the left and right."""
    return "window_size" in _options()


@cache
def _options() -> frozenset[str]:
    from torch.nn.attention.varlen import varlen_attn

    return frozenset(inspect.signature(varlen_attn).parameters)


__all__ = ["NAME", "attend", "register_attention", "without_cudnn_attention"]
