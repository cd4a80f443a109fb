"""`scaled_dot_product_attention` as it is called, and as libraries evaluate it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch.overrides import TorchFunctionMode

PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
"""Those that may be given by position, in torch's order."""


def attention_arguments(
    func: object, args: Sequence[object], kwargs: Mapping[str, object]
) -> dict[str, object] | None:
    """The arguments of a call by their names; None where `func` is not torch's attention."""
    if func is not torch.nn.functional.scaled_dot_product_attention:
        return None
    return dict(zip(PARAMETERS, args, strict=False)) | dict(kwargs)


def operands(named: Mapping[str, object]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Query, key and value, a head of key and value for each head of the query."""
    query, key, value = (cast("torch.Tensor", named[x]) for x in ("query", "key", "value"))
    if named.get("enable_gqa"):
        key, value = (
            item.repeat_interleave(query.shape[-3] // item.shape[-3], -3) for item in (key, value)
        )
    return query, key, value


def scores_of(named: Mapping[str, object], query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """The scores before the softmax, [..., queries, keys]: a key that a mask of truth values or
    causality leaves out has -inf, whatever its product is."""
    scale = cast("float | None", named.get("scale")) or query.shape[-1] ** -0.5
    scores = query @ key.transpose(-1, -2) * scale
    mask = cast("torch.Tensor | None", named.get("attn_mask"))
    if mask is None and named.get("is_causal"):
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask


BLOCKS = (64, 16, 128, 32, 256, 1 << 30)
"""Keys that kernels take at a time."""


class NarrowWeights(TorchFunctionMode):
    """Attention of 16-bit values as fused kernels evaluate it, torch's among them: fp32 scores, and
    weights rounded to 16 bits for the second product, as a matrix unit reads them. They are rounded
    against the largest score so far, before they are divided by their sum: how many keys are taken
    at a time, from which end, and where that maximum stands within a factor of e are drawn. The
    rounding goes `times` as far. By torch's own definition the weights stay in fp32."""

    def __init__(self, seed: int, times: float = 1.0) -> None:
        super().__init__()
        self._seed = seed
        self._times = times

    def __torch_function__(  # type: ignore[no-untyped-def] # torch's own signature
        self, func, types, args=(), kwargs=None
    ):
        """Run `func`, or attention so."""
        named = attention_arguments(func, args, kwargs or {})
        if named is None or named.get("dropout_p"):
            return func(*args, **(kwargs or {}))
        query, key, value = operands(named)
        if query.dtype not in (torch.float16, torch.bfloat16):
            return func(*args, **(kwargs or {}))
        scores = scores_of(named, query.float(), key.float())
        so_far = self._largest_so_far(scores)
        weights = (scores - so_far).exp()
        rounded = weights.to(query.dtype).float()
        weights_off = self._times * (rounded - weights)
        top = so_far.amax(-1, keepdim=True)
        weights = weights * (so_far - top).exp()
        weights_off = weights_off * (so_far - top).exp()
        total = weights.sum(-1, keepdim=True)
        found = (weights + weights_off) @ value.float() / torch.where(total == 0, 1.0, total)
        return found.to(query.dtype)

    def _largest_so_far(self, scores: torch.Tensor) -> torch.Tensor:
        """[..., queries, keys]: against which score each weight is rounded."""
        keys = scores.shape[-1]
        block = min(BLOCKS[self._seed % len(BLOCKS)], keys)
        backwards = self._seed // len(BLOCKS) % 2 == 1
        found = scores.flip(-1) if backwards else scores
        found = torch.nn.functional.pad(found, (0, -keys % block), value=-torch.inf)
        found = found.reshape(*found.shape[:-1], -1, block).amax(-1).cummax(-1).values
        found = torch.where(found == -torch.inf, 0.0, found)
        generator = torch.Generator(device=scores.device).manual_seed(13 + 104_729 * self._seed)
        found = found + torch.rand(found.shape, generator=generator, device=scores.device)
        found = found.repeat_interleave(block, -1)[..., :keys]
        return found.flip(-1) if backwards else found
