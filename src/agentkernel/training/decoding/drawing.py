"""Which token comes next, given what a model expects and a number between 0 and 1?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

KEY = (1 << 64) - 1


@dataclass(frozen=True)
class TokenSampling:
    """How tokens are drawn, and how many at most. Temperature 0: always the likeliest."""

    temperature: float
    top_p: float
    most_tokens: int


def uniform_streams(seed: int, rows: Sequence[int], count: int) -> torch.Tensor:
    """Uniform numbers in [0, 1), float32 [rows, count]: those of a row depend on `seed` and its
    number alone, so that it draws the same beside whatever other rows (Philox, a counter-based
    generator: Salmon et al., SC 2011)."""
    found = np.empty((len(rows), count), dtype=np.float32)
    for place, row in enumerate(rows):
        key = np.array([seed & KEY, row], dtype=np.uint64)
        generator = np.random.Generator(np.random.Philox(key=key))
        generator.random(out=found[place], dtype=np.float32)
    return torch.from_numpy(found)


def sample_tokens(
    logits: torch.Tensor, uniforms: torch.Tensor, drawing: TokenSampling
) -> torch.Tensor:
    """A token a row, int64 [rows], from the smallest set of the likeliest tokens whose
    probabilities come to `top_p`; equally likely ones are in it or out of it together.

    `logits` [rows, vocabulary], `uniforms` [rows] in [0, 1): where it falls among the summed
    probabilities, in the vocabulary's order, is the token.
    """
    if drawing.temperature == 0:
        return logits.argmax(-1)
    likely = torch.softmax(logits.float() / drawing.temperature, -1)
    if drawing.top_p < 1:
        likely = _nucleus(likely, drawing.top_p)
    # In 64 bits, so that no product with a number below 1 is rounded up to the whole.
    summed = likely.double().cumsum(-1)
    wanted = uniforms.double()[:, None] * summed[:, -1:]
    return (summed > wanted).to(torch.uint8).argmax(-1)


def _nucleus(likely: torch.Tensor, top_p: float) -> torch.Tensor:
    falling = likely.sort(-1, descending=True).values
    short = (falling.cumsum(-1) < top_p).sum(-1, keepdim=True)
    least = falling.gather(-1, short.clamp(max=likely.shape[-1] - 1))
    return likely.masked_fill(likely < least, 0.0)


__all__ = ["TokenSampling", "sample_tokens", "uniform_streams"]
