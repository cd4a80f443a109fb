"""Random numbers for tensors of any size, of which those past a million repeat.

A judgement asks for some fifty modules with weights of their own. Drawing 44 million normals takes
0.4 s of a core each time, more than all that is then done with them; laying out the same million
again and again takes a tenth of that. The period is a prime, so that no two rows of a matrix are
alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

PERIOD = 1_048_583
"""The first prime past 2**20."""


def drawn(count: int, generator: torch.Generator, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Uniform numbers from 0 to 1 for a tensor of `count` elements: at most a period of them."""
    size = min(count, PERIOD)
    return torch.rand(size, generator=generator, dtype=dtype, device=generator.device)


def normals(count: int, generator: torch.Generator) -> torch.Tensor:
    """The same of a normal distribution."""
    return torch.randn(min(count, PERIOD), generator=generator, device=generator.device)


def laid_out(numbers: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A tensor of `shape` with `numbers` in its order, again from the first where they end."""
    count = math.prod(shape)
    if len(numbers) < count:
        numbers = numbers.repeat(-(-count // len(numbers)))
    return numbers[:count].view(*shape) if shape else numbers[0]
