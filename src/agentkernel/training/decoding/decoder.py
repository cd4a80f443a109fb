"""Continuous batching: many prompts decoded at once, a free slot going to the next prompt.

Each answer has a slot with room for its keys and values. When no prompt waits any more, the
rows that are still written get fewer. On a GPU a step is one CUDA graph for each number of
rows: its shapes are the same from the first token to the last, and how far each row looks back
is read on the GPU. Models of other kinds are decoded by transformers, padded to the left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch.nn.functional import scaled_dot_product_attention

from agentkernel.training.decoding.llama import (
    Heads,
    KeyValueCache,
    Llama,
    RotaryTables,
    TokenSampling,
    TorchOperations,
    apply_rotary,
    by_head,
    read_llama,
    uniform_streams,
)

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedModel


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
    graphs: bool = True
    """A GPU's steps are recorded, or else launched one by one."""


GPU = DecodePacing(look=32, refill=1 / 16, prefill_tokens=32768, least_rows=8)
"""A look waits for the GPU, reading costs launches, and a number of rows is a graph of its own;
what has ended meanwhile costs next to nothing."""
CPU = DecodePacing(look=1, refill=0.0, prefill_tokens=4096, least_rows=None)
Step = Callable[[torch.Tensor], None]
"""A token more for the slots at these places."""
Ended = Callable[[int, list[int]], None]
"""Hears a prompt's number and its answer."""


class Decoder:
    """Answers prompts in `count` slots. `pace` and `operations`: those of the device."""

    def __init__(
        self,
        llama: Llama,
        prompts: Sequence[Prompt],
        drawing: TokenSampling,
        *,
        count: int,
        pace: DecodePacing | None = None,
        operations: TorchOperations | None = None,
    ) -> None:
        self._llama, self._drawing = llama, drawing
        on_gpu = llama.device.type == "cuda"
        self._pace = pace or (GPU if on_gpu else CPU)
        self._operations = operations or operations_for(llama.device)
        self._graphs = _Graphs() if on_gpu and self._pace.graphs else None
        # Of about one length at a time, the longest first: what does not fit shows at once.
        self._waiting = deque(sorted(prompts, key=lambda item: (-len(item.tokens), item.row)))
        self._slots = make_slots(llama, prompts, count, drawing.ends)
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
        uniforms = uniform_streams(self._drawing.seed, [item.row for item in prompts], widest)
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


def operations_for(device: torch.device) -> TorchOperations:
    """Kernels of our own on a GPU."""
    if device.type != "cuda":
        return TorchOperations()
    from agentkernel.training.decoding.kernels import TritonOperations

    return TritonOperations()


def generate(
    model: PreTrainedModel, prompts: Sequence[Prompt], drawing: TokenSampling
) -> list[list[int]]:
    """An answer to each, as far as the one with the least room may go; drawn by torch's own
    generators."""
    longest = max(len(item.tokens) for item in prompts)
    device = next(model.parameters()).device
    pad = min(drawing.ends, default=0)
    lead = [longest - len(item.tokens) for item in prompts]
    tokens = [[pad] * gap + [*item.tokens] for gap, item in zip(lead, prompts, strict=True)]
    mask = [[0] * gap + [1] * (longest - gap) for gap in lead]
    rows = model.generate(  # type: ignore[operator]
        torch.tensor(tokens, device=device),
        attention_mask=torch.tensor(mask, device=device),
        generation_config=_generation(drawing, min(item.most for item in prompts), pad),
    )
    return [_cut(row, drawing.ends) for row in rows[:, longest:].tolist()]


def _generation(drawing: TokenSampling, most: int, pad: int) -> GenerationConfig:
    from transformers import GenerationConfig

    drawn = drawing.temperature > 0
    return GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=most,
        do_sample=drawn,
        temperature=drawing.temperature if drawn else None,
        top_p=drawing.top_p if drawn else None,
        top_k=0 if drawn else None,
        eos_token_id=sorted(drawing.ends) or None,
        pad_token_id=pad,
    )


def _cut(row: list[int], ends: frozenset[int]) -> list[int]:
    """Up to the token that ends it: the batch may have gone on for the others."""
    end = next((place for place, token in enumerate(row) if token in ends), len(row))
    return row[: end + 1]


@contextmanager
def generating(model: PreTrainedModel, seed: int) -> Iterator[None]:
    """The model as it answers, drawing from `seed`; a training goes on as if nobody had asked.
    What the folder of the weights says about sampling does not count meanwhile."""
    from transformers import GenerationConfig

    device = next(model.parameters()).device
    training, beside = model.training, model.generation_config
    model.train(False)
    model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            yield
    finally:
        model.generation_config = beside
        model.train(training)


ROWS = 512
"""Answers that are written at once on a GPU: a step of a small model takes as long for one."""
ROWS_CPU = 64
OnAnswer = Callable[[int, int], None]
"""Hears how many answers are written, and of how many."""


def answer_all(
    model: object,
    prompts: Sequence[Sequence[int]],
    drawing: TokenSampling,
    *,
    window: int,
    rows: int | None = None,
    wrote: OnAnswer = lambda number, total: None,
) -> list[list[int]]:
    """An answer to each prompt, in order, as far as `window` goes; none where the prompt fills it.

    `model` is left as it was. It computes in autocast's type where that is on. A plain Llama is
    decoded here, whose answers depend on the seed and on their place among the prompts alone (but
    for rounding, which the number of `rows` decides); transformers writes the others.
    Raises OutOfMemoryError where not even one answer has room.
    """
    asked = [
        Prompt(number, tokens, min(drawing.most_tokens, window - len(tokens)))
        for number, tokens in enumerate(prompts)
        if len(tokens) < window
    ]
    found: list[list[int]] = [[] for _ in prompts]
    done: set[int] = set()

    def ended(row: int, answer: list[int]) -> None:
        found[row] = answer
        done.add(row)
        wrote(len(done), len(asked))

    device = next(cast("PreTrainedModel", model).parameters()).device
    at_once = rows or (ROWS if device.type == "cuda" else ROWS_CPU)
    with torch.no_grad():
        llama = read_llama(model, _autocast_dtype(device))
        while left := [item for item in asked if item.row not in done]:
            try:
                if llama is not None:
                    _decode(llama, left, drawing, at_once, ended)
                else:
                    _generate(model, left, drawing, at_once, ended)
            except torch.OutOfMemoryError:
                if at_once == 1:
                    raise
                at_once = max(at_once // 2, 1)
            else:
                continue
            # Out here, where nothing of what was half done is held by the error any more.
            torch.cuda.empty_cache()
    if device.type == "cuda":
        # The judges of what was written may work on the same GPU.
        torch.cuda.empty_cache()
    return found


def _decode(
    llama: Llama,
    prompts: Sequence[Prompt],
    drawing: TokenSampling,
    rows: int,
    ended: Callable[[int, list[int]], None],
) -> None:
    count = fitting_rows(llama, prompts, rows)
    on_gpu = llama.device.type == "cuda"
    # The types are chosen here; autocast would copy the weights at every step.
    with (
        torch.autocast(llama.device.type, enabled=False),
        torch.cuda.device(llama.device) if on_gpu else nullcontext(),
    ):
        Decoder(llama, prompts, drawing, count=count).run(ended)


def _generate(
    model: object,
    prompts: Sequence[Prompt],
    drawing: TokenSampling,
    rows: int,
    ended: Callable[[int, list[int]], None],
) -> None:
    """Of about one length at a time, the longest first: what does not fit shows at once."""
    known = cast("PreTrainedModel", model)
    order = sorted(prompts, key=lambda item: (-len(item.tokens), item.row))
    with generating(known, drawing.seed):
        for begin in range(0, len(order), rows):
            batch = order[begin : begin + rows]
            for item, answer in zip(batch, generate(known, batch, drawing), strict=True):
                ended(item.row, answer)


def _autocast_dtype(device: torch.device) -> torch.dtype | None:
    if not torch.is_autocast_enabled(device.type):
        return None
    return torch.get_autocast_dtype(device.type)
