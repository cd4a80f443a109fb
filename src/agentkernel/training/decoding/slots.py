"""Where does each answer stand, and how much room is there for them?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from agentkernel.training.decoding.llama import Llama
from agentkernel.training.decoding.operations import KeyValueCache

SHARE = 0.6
"""Of the free memory, for keys and values: the rest is for what a prefill computes."""
BLOCK = 16
"""Tokens that room is a multiple of, so that no row of a kernel begins off a cache line."""


class Prompt(NamedTuple):
    """What is to be answered: its number in the call, its tokens, and how many at most follow."""

    row: int
    tokens: Sequence[int]
    most: int

    @property
    def room(self) -> int:
        """Tokens with keys and values: the last one is never looked back at."""
        return len(self.tokens) + self.most - 1


@dataclass(frozen=True)
class Slots:
    """The answers being written, one a slot: all but `kept` are [slots] or [slots, most]."""

    kept: tuple[KeyValueCache, ...]
    tokens: torch.Tensor
    """The last token of each, whose key and value are not yet kept."""
    lengths: torch.Tensor
    """Tokens whose keys and values are kept, int32; 0 once an answer has ended, so that it costs no
    more reading."""
    counts: torch.Tensor
    """Tokens of the answer."""
    limits: torch.Tensor
    live: torch.Tensor
    answers: torch.Tensor
    """One column more than there are tokens, for what ended answers write."""
    uniforms: torch.Tensor
    ends: torch.Tensor

    def begin(self, slots: torch.Tensor, limits: Sequence[int], uniforms: torch.Tensor) -> None:
        """New answers in `slots`, of `limits` tokens at most."""
        device = self.tokens.device
        self.counts[slots] = 0
        self.limits[slots] = torch.tensor(limits, device=device)
        self.live[slots] = True
        self.uniforms[slots, : uniforms.shape[1]] = uniforms.to(device)

    def next_uniforms(self, slots: torch.Tensor) -> torch.Tensor:
        """What decides about the next token of each of `slots`."""
        places = self.counts[slots].clamp(max=self.uniforms.shape[1] - 1)
        return self.uniforms[slots, places]

    def take(self, slots: torch.Tensor, drawn: torch.Tensor, lengths: torch.Tensor) -> None:
        """`drawn` [slots] go on their answers; `lengths` tokens are kept by now. No sizes depend
        on what is drawn: the same launches do for all steps."""
        live, counts = self.live[slots], self.counts[slots]
        spare = self.answers.shape[1] - 1
        self.answers[slots, counts.masked_fill(~live, spare)] = drawn
        counts = counts + live
        ended = (drawn[:, None] == self.ends).any(-1) | (counts >= self.limits[slots])
        live = live & ~ended
        self.tokens[slots] = drawn
        self.counts[slots] = counts
        self.live[slots] = live
        self.lengths[slots] = lengths.to(torch.int32) * live


def make_slots(llama: Llama, prompts: Sequence[Prompt], count: int, ends: frozenset[int]) -> Slots:
    """`count` slots, each with room for any of `prompts`."""
    device, most = llama.device, max(item.most for item in prompts)
    shape = (count, llama.key_heads, room_of(prompts), llama.size)

    def whole(*sizes: int) -> torch.Tensor:
        return torch.zeros(*sizes, dtype=torch.int64, device=device)

    return Slots(
        kept=tuple(
            KeyValueCache(*(torch.zeros(shape, dtype=llama.dtype, device=device) for _ in range(2)))
            for _ in llama.layers
        ),
        tokens=whole(count),
        lengths=whole(count).to(torch.int32),
        counts=whole(count),
        limits=whole(count),
        live=torch.zeros(count, dtype=torch.bool, device=device),
        answers=whole(count, most + 1),
        uniforms=torch.zeros(count, most, device=device),
        ends=torch.tensor(sorted(ends), dtype=torch.int64, device=device),
    )


def room_of(prompts: Sequence[Prompt]) -> int:
    """Tokens that a slot for any of `prompts` keeps."""
    return -(-max(item.room for item in prompts) // BLOCK) * BLOCK


def fitting_rows(llama: Llama, prompts: Sequence[Prompt], rows: int) -> int:
    """How many slots the free memory of a GPU holds: `rows`, halved until they fit, so that what is
    free today and not tomorrow seldom changes the shapes that are computed."""
    if llama.device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(llama.device)
        idle = torch.cuda.memory_reserved(llama.device) - torch.cuda.memory_allocated(llama.device)
        budget = SHARE * (free + idle)
        while rows > 1 and rows * room_of(prompts) * llama.token_bytes() > budget:
            rows //= 2
    return min(rows, len(prompts))


__all__ = ["Prompt", "Slots", "fitting_rows", "make_slots", "room_of"]
