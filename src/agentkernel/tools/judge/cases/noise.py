"""Random numbers for tensors of any size, of which those past a million are made of the first.

A judgement asks for some fifty modules with weights of their own. Drawing 11.5 million normals
takes 64 ms of a core each time, more than all that is then done with them; a million that are
scaled anew again and again take 25 ms. The period is a prime, so that no two rows of a matrix are
alike, and each repetition has a factor or an offset of its own, so that no two elements are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

PERIOD = 1_048_583
"""The first prime past 2**20."""


class Normals(NamedTuple):
    """Normal numbers, and by how much they are multiplied in each repetition."""

    numbers: torch.Tensor
    factors: torch.Tensor

    def moved(self, scale: torch.Tensor) -> Normals:
        """Others, for the same tensor: those beside them, times `scale`."""
        return Normals(scale * self.numbers.roll(1), self.factors)

    def over(self, shape: Sequence[int]) -> torch.Tensor:
        """A tensor of `shape`."""
        whole = self.factors[:, None] * self.numbers if len(self.factors) > 1 else self.numbers
        return whole.reshape(-1)[: math.prod(shape)].view(*shape) if shape else whole[0]


def normals(count: int, generator: torch.Generator) -> Normals:
    """For a tensor of `count` elements."""
    numbers = torch.randn(min(count, PERIOD), generator=generator, device=generator.device)
    repeated = -(-count // PERIOD)
    if repeated < 2:
        return Normals(numbers, numbers.new_ones(1))
    factors = 0.9 + 0.2 * torch.rand(repeated, generator=generator, device=generator.device)
    factors[0] = 1.0
    return Normals(numbers, factors)


def uniform(
    shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """A tensor of uniform numbers from 0 to 1."""
    count, device = math.prod(shape), generator.device
    numbers = torch.rand(min(count, PERIOD), generator=generator, dtype=dtype, device=device)
    repeated = -(-count // PERIOD)
    if repeated > 1:
        offsets = torch.rand(repeated, generator=generator, dtype=dtype, device=device)
        numbers = (offsets[:, None] + numbers).frac_().reshape(-1)[:count]
    return numbers.view(*shape) if shape else numbers[0]
