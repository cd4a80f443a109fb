"""How are many prompts answered by one model so that no long answer holds up the others?

Each answer has a slot with room for its keys and values. Whatever ends gives its slot to the next
prompt; when none waits any more, the rows that are still written get fewer. On a GPU a step is one
CUDA graph for each number of rows: its shapes are the same from the first token to the last, and
how far each row looks back is read on the GPU.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch.nn.functional import scaled_dot_product_attention

from agentkernel.training.decoding.drawing import TokenSampling, uniform_streams
from agentkernel.training.decoding.llama import Llama
from agentkernel.training.decoding.operations import (
    Heads,
    Operations,
    RotaryTables,
    TorchOperations,
    apply_rotary,
    by_head,
)
from agentkernel.training.decoding.slots import Prompt, Slots, make_slots, room_of

SHRINK = 4
"""Rows that have ended cost no reading, so that a graph for half as many would gain little."""


@dataclass(frozen=True)
class DecodePacing:
    """How a device is kept busy."""

    look: int
    """Steps from one look at what has ended to the next."""
    refill: float
    """The share of the slots that is free before prompts are read into them."""
    prefill_tokens: int
    """Tokens, with padding, that are read at once."""
    least_rows: int | None
    """A step has all rows, a quarter of them, a quarter of that... and no fewer; None: just the
    live ones."""


GPU = DecodePacing(look=32, refill=1 / 16, prefill_tokens=32768, least_rows=8)
"""A look waits for the GPU, reading costs launches, and a number of rows is a graph of its own;
what has ended meanwhile costs next to nothing."""
CPU = DecodePacing(look=1, refill=0.0, prefill_tokens=4096, least_rows=None)
Step = Callable[[torch.Tensor], None]
"""A token more for the slots at these places."""
Ended = Callable[[int, list[int]], None]
"""Hears a prompt's number and its answer."""


class Decoder:
    """Answers prompts in `count` slots. `pace` and `operations`: those of the device; `graphs`
    False: a GPU's steps are launched one by one."""

    def __init__(
        self,
        llama: Llama,
        prompts: Sequence[Prompt],
        drawing: TokenSampling,
        *,
        count: int,
        ends: frozenset[int],
        seed: int,
        pace: DecodePacing | None = None,
        operations: Operations | None = None,
        graphs: bool = True,
    ) -> None:
        self._llama, self._drawing, self._seed = llama, drawing, seed
        on_gpu = llama.device.type == "cuda"
        self._pace = pace or (GPU if on_gpu else CPU)
        self._operations = operations or operations_for(llama.device)
        self._graphs = _Graphs() if on_gpu and graphs else None
        # Of about one length at a time, the longest first: what does not fit shows at once.
        self._waiting = deque(sorted(prompts, key=lambda item: (-len(item.tokens), item.row)))
        self._slots = make_slots(llama, prompts, count, ends)
        self._turns = llama.turns(room_of(prompts))
        self._held: list[Prompt | None] = [None] * count
        self._left = [0] * count

    def run(self, ended: Ended) -> None:
        """Answer all, in no order."""
        while self._waiting or any(item is not None for item in self._held):
            self._refill()
            self._harvest(ended)
            live = [slot for slot, item in enumerate(self._held) if item is not None]
            if not live:
                continue
            steps = min(self._pace.look, max(self._left[slot] for slot in live))
            where = torch.tensor(self._rows(live), device=self._llama.device)
            for _ in range(steps):
                if self._graphs is None:
                    self._step(where)
                else:
                    self._graphs.step(self._step, where)
            for slot in live:
                self._left[slot] -= steps
            self._harvest(ended)

    def _rows(self, live: Sequence[int]) -> list[int]:
        """The slots of a step, `live` among them."""
        least, count = self._pace.least_rows, len(self._held)
        if least is None:
            return list(live)
        rows = count
        while not self._waiting and rows // SHRINK >= max(len(live), least):
            rows //= SHRINK
        idle = [slot for slot in range(count) if self._held[slot] is None]
        return sorted([*live, *idle[: rows - len(live)]])

    def _refill(self) -> None:
        free = [slot for slot, item in enumerate(self._held) if item is None]
        if len(free) < self._pace.refill * len(self._held):
            return
        while free and self._waiting:
            longest = max(len(item.tokens) for item in islice(self._waiting, len(free)))
            number = max(self._pace.prefill_tokens // longest, 1)
            number = min(number, len(free), len(self._waiting))
            self._read(free[:number], [self._waiting.popleft() for _ in range(number)])
            free = free[number:]

    def _read(self, places: Sequence[int], prompts: Sequence[Prompt]) -> None:
        """Keep the prompts' keys and values, and draw each answer's first token."""
        slots = torch.tensor(places, device=self._llama.device)
        lengths = torch.tensor([len(item.tokens) for item in prompts], device=slots.device)
        longest = max(len(item.tokens) for item in prompts)
        padded = [[*item.tokens] + [0] * (longest - len(item.tokens)) for item in prompts]
        tokens = torch.tensor(padded, device=slots.device)
        last = torch.arange(len(prompts), device=slots.device) * longest + lengths - 1
        turns = RotaryTables(*(item[:longest].repeat(len(prompts), 1) for item in self._turns))

        def attend(number: int, heads: Heads) -> torch.Tensor:
            return _read_layer(self._slots, number, heads, turns, slots, longest)

        logits = self._llama.logits(tokens.flatten(), self._operations, attend, last)
        widest = max(item.most for item in prompts)
        uniforms = uniform_streams(self._seed, [item.row for item in prompts], widest)
        self._slots.begin(slots, [item.most for item in prompts], uniforms)
        self._draw(slots, logits, lengths)
        for slot, item in zip(places, prompts, strict=True):
            self._held[slot], self._left[slot] = item, item.most - 1

    def _step(self, slots: torch.Tensor) -> None:
        """One token more for each of `slots`."""
        held, turns, operations = self._slots, self._turns, self._operations

        def attend(number: int, heads: Heads) -> torch.Tensor:
            return operations.attend(heads, held.kept[number], turns, slots, held.lengths)

        logits = self._llama.logits(held.tokens[slots], operations, attend)
        self._draw(slots, logits, held.lengths[slots] + 1)

    def _draw(self, slots: torch.Tensor, logits: torch.Tensor, lengths: torch.Tensor) -> None:
        uniforms = self._slots.next_uniforms(slots)
        drawn = self._operations.draw(logits, uniforms, self._drawing)
        self._slots.take(slots, drawn, lengths)

    def _harvest(self, ended: Ended) -> None:
        live = self._slots.live.tolist()
        over = [
            (slot, item)
            for slot, item in enumerate(self._held)
            if item is not None and not live[slot]
        ]
        if not over:
            return
        slots = torch.tensor([slot for slot, _ in over], device=self._llama.device)
        counts, answers = self._slots.counts[slots].tolist(), self._slots.answers[slots].tolist()
        for (slot, item), count, answer in zip(over, counts, answers, strict=True):
            self._held[slot] = None
            ended(item.row, answer[:count])


def _read_layer(
    held: Slots, number: int, heads: Heads, turns: RotaryTables, slots: torch.Tensor, longest: int
) -> torch.Tensor:
    """A layer's causal attention within prompts that are padded on the right: no token of one looks
    at what is behind it, and what is kept of the padding is overwritten before it is looked at."""
    keys, values = held.kept[number]
    size = keys.shape[-1]

    def laid_out(item: torch.Tensor) -> torch.Tensor:
        """[prompts, heads, longest, size]."""
        return item.view(-1, longest, *item.shape[1:]).transpose(1, 2)

    query, key, value = (by_head(item, size) for item in heads)
    query, key = laid_out(apply_rotary(query, turns)), laid_out(apply_rotary(key, turns))
    value = laid_out(value)
    keys[slots, :, :longest] = key
    values[slots, :, :longest] = value
    found = scaled_dot_product_attention(
        query, key, value, is_causal=True, enable_gqa=query.shape[1] != key.shape[1]
    )
    return found.transpose(1, 2).flatten(2).flatten(0, 1)


class _Graphs:
    """A CUDA graph for each number of rows. The first step of each is launched one by one: what is
    compiled and set up at a first call cannot be recorded."""

    def __init__(self) -> None:
        self._slots: dict[int, torch.Tensor] = {}
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def step(self, step: Step, slots: torch.Tensor) -> None:
        """`step` of `slots`, from the graph of as many."""
        rows = len(slots)
        if rows not in self._slots:
            self._slots[rows] = slots.clone()
            step(slots)
            return
        self._slots[rows].copy_(slots)
        if rows not in self._graphs:
            self._graphs[rows] = self._recorded(step, self._slots[rows])
        self._graphs[rows].replay()

    def _recorded(self, step: Step, slots: torch.Tensor) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        # Graphs run one at a time, and leave nothing in memory of their own that another reads.
        pool = next((item.pool() for item in self._graphs.values()), None)
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            step(slots)
        return graph


def operations_for(device: torch.device) -> Operations:
    """Kernels of our own on a GPU."""
    if device.type != "cuda":
        return TorchOperations()
    from agentkernel.training.decoding.launches import TritonOperations

    return TritonOperations()


__all__ = ["CPU", "GPU", "DecodePacing", "Decoder", "Ended", "operations_for"]
