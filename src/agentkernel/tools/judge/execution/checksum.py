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
        total = flat.nbytes
        for number, piece in enumerate(self.sums(flat).tolist()):
            total = (total * 1_000_003 + piece + number) % (1 << 64)
        return total

    def sums(self, flat: torch.Tensor) -> torch.Tensor:
        """One number for each `PIECE_BYTES` of a contiguous tensor of any dtype, int64, on its
        device and in the order of the current stream: nothing waits for them."""
        data = flat.reshape(-1).view(torch.uint8)
        starts = range(0, data.numel(), PIECE_BYTES)
        found = [self._sum(data[start : start + PIECE_BYTES]) for start in starts]
        return torch.stack(found) if found else data.new_zeros(0, dtype=torch.int64)

    def _sum(self, data: torch.Tensor) -> torch.Tensor:
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
        return mixed.sum() + (tail * factors[: tail.numel()]).sum()

    def _for(self, device: torch.device, words: int) -> torch.Tensor:
        """Random odd numbers on `device`, made once."""
        known = self._factors.get(device)
        if known is None or known.numel() < max(words, WORD):
            least = max(words, WORD)
            drawn = torch.randint(-(1 << 62), 1 << 62, (least,), generator=self._generator)
            self._factors[device] = known = (drawn * 2 + 1).to(device)
        return known
