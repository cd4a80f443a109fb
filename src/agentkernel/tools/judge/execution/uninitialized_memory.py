"""What fresh memory holds in a call that is judged, so that what nobody wrote shows."""

from __future__ import annotations

import random

import torch

POOL = 509
"""Values that fresh memory may hold, over and over: a prime, so that rows differ."""


class UninitializedMemory:
    """What fresh memory holds: torch's own fill (NaN, the largest number) in every second
    allocation; zeros, one large value or what looks like old results in the others. A kernel can
    tell no judge by it, and what nobody wrote is wrong in some call. Truth values are True in all:
    each of two is right by accident too often."""

    def __init__(self, device: str, seed: int | None = None) -> None:
        """The same for the same `seed`, so that a judgement can be had again."""
        self._draw = random.Random(seed)
        old = [self._draw.gauss(0.0, 1.0) * (self._draw.random() < 0.9) for _ in range(POOL)]
        floats = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
        kinds = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
        values = torch.tensor(old, device=device)
        self._pools = {kind: values.to(kind) for kind in floats}
        self._pools |= {kind: (values * 16).abs().to(kind) for kind in kinds}

    def fill(self, room: torch.Tensor) -> None:
        """Fill all of its storage, which nobody else holds yet."""
        pool = self._pools.get(room.dtype)
        drawn = self._draw.random()
        if drawn < 0.5 or pool is None or pool.device != room.device or not room.numel():
            return
        flat = torch.empty(0, dtype=room.dtype, device=room.device)
        flat.set_(room.untyped_storage())
        if drawn < 0.625:
            flat.zero_()
        elif drawn < 0.75:
            flat.fill_(self._draw.choice((-1, 1)) * self._draw.choice((7, 60, 100)))
        else:
            whole = flat.numel() // POOL * POOL
            flat[:whole].view(-1, POOL).copy_(pool)
            flat[whole:].copy_(pool[: flat.numel() - whole])
