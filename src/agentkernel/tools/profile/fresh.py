"""Which inputs does a volley get? Ones that nobody has seen before the clock runs."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from agentkernel.tools.profile.arena import Layout, spans, spec_of

if TYPE_CHECKING:
    import torch

SPREAD = 1 << 16
"""How many places in the bank of factors a row may begin at."""
ROW_STEP = 1031
"""Elements between the factors of neighbouring rows; prime, so that no stride lines up."""
WEAKEST = 0.5
"""Smallest factor of an element. None is above 1: what was in [-1, 1] or [0, 1] stays there."""
LOUDNESS = (0.75, 1.0)
"""Range of a row's common factor, so that sums of many elements differ between rows too."""


class Fresh:
    """Writes rows of inputs: each element of the problem's own times its own random factor.

    Signs, zeros, infinities and NaN stay what they are, and so do integers and booleans. With
    `vary` False the rows are copies, for a reference that takes no other numbers than its own
    (a Cholesky factorisation, say).
    """

    def __init__(
        self, inputs: Sequence[torch.Tensor], layout: Layout, seed: int, *, vary: bool = True
    ) -> None:
        self._layout = layout
        self._sources = [span_of(item) for item in inputs]
        self._banks: dict[torch.dtype, torch.Tensor] = {}
        if vary:
            self._fill_banks(seed)

    @property
    def varies(self) -> bool:
        """True where at least one input differs from row to row."""
        return bool(self._banks)

    def write(self, pool: torch.Tensor, seed: int) -> None:
        """Fill `pool`; the same `seed` gives the same numbers. Waits for the device."""
        import torch

        chosen = random.Random(seed)
        begin = chosen.randrange(SPREAD)
        loudness = [chosen.uniform(*LOUDNESS) for _ in range(self._layout.rows)]
        targets = spans(pool, self._layout.tensors, self._layout.rows)
        with torch.no_grad():
            for target, source in zip(targets, self._sources, strict=True):
                bank = self._banks.get(source.dtype)
                if bank is None or not source.numel():
                    target.copy_(source.expand_as(target))
                    continue
                nothing = torch.zeros((), dtype=source.dtype, device=source.device)
                for index, loud in enumerate(loudness):
                    factors = bank.narrow(0, begin + index * ROW_STEP, source.numel())
                    torch.addcmul(nothing, source, factors, value=loud, out=target[index])
            if pool.is_cuda:
                torch.cuda.synchronize()

    def unchanged(self, pool: torch.Tensor, seed: int) -> list[bool]:
        """Whether each input is in all rows as `write` left it. Writes it again."""
        found = self.checksums(pool)
        self.write(pool, seed)
        return [bool(a.equal(b)) for a, b in zip(found, self.checksums(pool), strict=True)]

    def checksums(self, pool: torch.Tensor) -> list[torch.Tensor]:
        """A checksum of each input over all rows, left on the device."""
        return [checksum(item) for item in spans(pool, self._layout.tensors, self._layout.rows)]

    def _fill_banks(self, seed: int) -> None:
        import torch

        for source in self._sources:
            usable = source.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
            if not usable or not source.numel():
                continue
            held = self._banks.get(source.dtype)
            need = source.numel() + SPREAD + self._layout.rows * ROW_STEP
            if held is None or held.numel() < need:
                self._banks[source.dtype] = _bank(need, source, seed)


def checksum(values: torch.Tensor) -> torch.Tensor:
    """Sums of the bytes' words down to a few columns, int64: any single change shows, and a value
    that moved to another column does. One pass over the memory. `values`: [rows, n] or flat."""
    import torch

    if not values.numel():
        return torch.zeros(1, dtype=torch.int64, device=values.device)
    words = values.reshape(-1, values.shape[-1]) if values.dim() > 1 else values.reshape(1, -1)
    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32}.get(words.element_size(), torch.int64)
    if words.is_complex():
        words = torch.view_as_real(words).flatten(-2)
        width = torch.int32 if words.element_size() == 4 else torch.int64
    bits = words.view(width)
    columns = 64 if bits.shape[1] >= 64 else 1
    whole = bits.shape[1] // columns * columns
    parts = bits[:, :whole].as_strided(
        (bits.shape[0], whole // columns, columns),
        (bits.stride(0), columns, 1),
        bits.storage_offset(),
    )
    body = parts.sum(dim=(0, 1), dtype=torch.int64)
    return torch.cat([body, bits[:, whole:].sum(dtype=torch.int64).view(1)])


def sums_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, bytes]:
    """The checksum of each of `tensors`, brought to the CPU."""
    return {name: checksum(item).cpu().numpy().tobytes() for name, item in tensors.items()}


def span_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory from the first element to the last one, flat."""
    return tensor.detach().as_strided((spec_of(tensor).extent,), (1,), tensor.storage_offset())


def _bank(length: int, like: torch.Tensor, seed: int) -> torch.Tensor:
    import torch

    generator = torch.Generator(device=like.device).manual_seed(seed)
    drawn = torch.rand(length, dtype=torch.float32, device=like.device, generator=generator)
    return (1.0 - (1.0 - WEAKEST) * drawn).to(like.dtype)
