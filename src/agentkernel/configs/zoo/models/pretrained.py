"""Models of the transformers library, built from a configuration with random weights."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


NO_MASK = "no mask"
"""A name that the library has no way to make masks for, so it makes none."""


def from_config(
    architecture: str,
    *,
    attention: str | None = None,
    experts: str | None = None,
    masks: bool = True,
    **sizes: object,
) -> nn.Module:
    """`architecture` (such as `BertModel`) with the configuration `sizes` and random weights.

    Nothing is downloaded, and no cache of keys and values is returned. `attention` and `experts`
    name the library's implementation of each: None leaves its own choice. `masks`: False for
    decoders whose sequences are all whole, see `_without_masks`.
    """
    import transformers

    model_class = getattr(transformers, architecture)
    config = model_class.config_class(**sizes)
    for part in (config, *(getattr(config, name) for name in config.sub_configs)):
        part.use_cache = False
    chosen = {"attn_implementation": attention, "experts_implementation": experts}
    given = {key: value for key, value in chosen.items() if value is not None}
    model: nn.Module = model_class._from_config(config, **given)
    return model if masks else _without_masks(model)


def _without_masks(model: nn.Module) -> nn.Module:
    """Have `model` make no attention masks; causal layers then ask SDPA for causality by its flag.

    Without a cache the library looks for several sequences in one row. Eagerly it reads the answer
    back from the GPU; under torch.compile it cannot, and writes out a mask, with which attention is
    slower. A prefill with a cache does neither.
    """
    from transformers import PreTrainedModel

    for part in model.modules():
        if isinstance(part, PreTrainedModel):
            # A copy: the attention layers keep the implementation that they were made with.
            part.config = copy.copy(part.config)
            part.config._attn_implementation = NO_MASK
    return model
