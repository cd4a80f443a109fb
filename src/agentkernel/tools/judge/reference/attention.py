"""`scaled_dot_product_attention` as it is called, and as libraries evaluate it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch.overrides import TorchFunctionMode

ATTENTION = torch.nn.functional.scaled_dot_product_attention
PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
"""Those that may be given by position, in torch's order."""


def attention_arguments(
    func: object, args: Sequence[object], kwargs: Mapping[str, object]
) -> dict[str, object] | None:
    """The arguments of a call by their names; None where `func` is not torch's attention."""
    if func is not ATTENTION:
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
    scale = cast("float | None", named.get("scale"))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.transpose(-1, -2) * scale
    mask = cast("torch.Tensor | None", named.get("attn_mask"))
    if mask is None and named.get("is_causal"):
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask


class AttentionCalls(TorchFunctionMode):
    """Asks `attend` at each call of torch's attention; those of its multi-head attention, inside of
    which torch turns such modes off, among them."""

    def __torch_function__(  # type: ignore[no-untyped-def] # torch's own signature
        self, func, types, args=(), kwargs=None
    ):
        """What `attend` gives, or else `func`."""
        kwargs = dict(kwargs or {})
        if func is torch.nn.functional.multi_head_attention_forward:
            before = torch.nn.functional.scaled_dot_product_attention
            torch.nn.functional.scaled_dot_product_attention = self._inside  # type: ignore[assignment]
            try:
                return func(*args, **kwargs)
            finally:
                torch.nn.functional.scaled_dot_product_attention = before
        named = attention_arguments(func, args, kwargs)
        found = self.attend(named) if named is not None else None
        return func(*args, **kwargs) if found is None else found

    def attend(self, named: Mapping[str, object]) -> torch.Tensor | None:
        """What the call with these arguments is to give; None for what torch makes of it."""
        raise NotImplementedError

    def _inside(self, *args: object, **kwargs: object) -> object:
        found = self.attend(attention_arguments(ATTENTION, args, kwargs) or {})
        return ATTENTION(*args, **kwargs) if found is None else found  # type: ignore[arg-type]


BLOCKS = (64, 16, 128, 32, 256, 1 << 30)
"""Keys that kernels take at a time."""


class NarrowWeights(AttentionCalls):
    """Attention of 16-bit values as fused kernels evaluate it, torch's among them: fp32 scores, and
    weights rounded to 16 bits for the second product, as a matrix unit reads them. They are rounded
    against the largest score so far, before they are divided by their sum: how many keys are taken
    at a time, from which end, and where that maximum stands within a factor of e are drawn. The
    rounding goes `times` as far. By torch's own definition the weights stay in fp32."""

    def __init__(self, seed: int, times: float = 1.0) -> None:
        super().__init__()
        self._seed = seed
        self._times = times

    def attend(self, named: Mapping[str, object]) -> torch.Tensor | None:
        """Attention so, where it is of 16 bits and drops nothing at random."""
        query, key, value = operands(named)
        narrow = query.dtype in (torch.float16, torch.bfloat16)
        if not narrow or named.get("dropout_p") or not all(map(torch.numel, (query, key, value))):
            return None
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
