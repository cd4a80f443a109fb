"""Sums over the bits of a tensor that show any write to it, taken piece by piece."""

from __future__ import annotations

import secrets

import torch

PIECE_BYTES = 64 << 20
WORD = 8
HALF = 32


class Checksum:
    """Sums with numbers that only this process knows: no other can write what leaves them alike."""

    def __init__(self) -> None:
        seed = secrets.randbits(63)
        self._generator = torch.Generator().manual_seed(seed)
        self._factors: dict[torch.device, torch.Tensor] = {}

    def of(self, flat: torch.Tensor) -> int:
        """The sum of a contiguous tensor of any dtype."""
        data = flat.reshape(-1).view(torch.uint8)
        total = data.numel()
        for number, start in enumerate(range(0, data.numel(), PIECE_BYTES)):
            piece = self._sum(data[start : start + PIECE_BYTES])
            total = (total * 1_000_003 + piece + number) % (1 << 64)
        return total

    def _sum(self, data: torch.Tensor) -> int:
        words = data.numel() // WORD
        factors = self._for(data.device, words)
        aligned = data[: words * WORD]
        if aligned.data_ptr() % WORD:
            aligned = aligned.clone()
        # The factors are odd: every bit of a word moves the sum. What is shifted down lets two
        # changes of the highest bits not make up for each other.
        mixed = aligned.view(torch.int64) * factors[:words]
        mixed ^= mixed >> HALF
        mixed *= factors[:words]
        tail = data[words * WORD :].to(torch.int64)
        rest = int((tail * factors[: tail.numel()]).sum()) if tail.numel() else 0
        return int(mixed.sum()) + rest

    def _for(self, device: torch.device, words: int) -> torch.Tensor:
        """Random odd numbers on `device`, made once."""
        known = self._factors.get(device)
        if known is None or known.numel() < max(words, WORD):
            least = max(words, WORD)
            drawn = torch.randint(-(1 << 62), 1 << 62, (least,), generator=self._generator)
            self._factors[device] = known = (drawn * 2 + 1).to(device)
        return known
