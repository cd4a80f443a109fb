"""How does a model in this process answer many questions at once?

`LocalModel` asks one at a time, as the loop does. Here the questions are padded to the left and
written in batches, which a small model on a large GPU is far faster at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

from agentkernel.agents.models.local_presets import LocalPreset, parse_local
from agentkernel.agents.models.local_text import Sample, prompt_ids, read_sample
from agentkernel.agents.models.local_weights import Weights, load_weights
from agentkernel.domain.exchange import Message, Sampling

if TYPE_CHECKING:
    from transformers import GenerationConfig

ROWS = 512
"""Answers that are written at once on a GPU: a step of a small model takes as long for one."""
ROWS_CPU = 16
Wrote = Callable[[int, int], None]
"""Hears how many answers are written, and of how many."""


class Writer(Protocol):
    """Whoever answers many conversations, `samples` times each."""

    def write(
        self, conversations: Sequence[Sequence[Message]], samples: int, wrote: Wrote
    ) -> list[list[Sample]]:
        """The answers to each conversation, in order."""
        ...


class _Row(NamedTuple):
    place: int
    tokens: list[int]


class LocalWriter:
    """The model that `local:...` names, or weights that are in memory already."""

    def __init__(
        self,
        model: str | Weights,
        sampling: Sampling | None = None,
        chat_template: bool = True,
        rows: int | None = None,
        seed: int = 0,
    ) -> None:
        preset: LocalPreset | None = None
        if isinstance(model, str):
            preset = parse_local(model)
            self.weights = load_weights(preset)
            self._chat_template = preset.chat_template
        else:
            self.weights = model
            self._chat_template = chat_template
        chosen = sampling or (preset.sampling() if preset else None)
        self._sampling = chosen or Sampling(temperature=0.8, top_p=0.95, max_tokens=1500)
        on_gpu = self.weights.device.type == "cuda"
        self._rows = rows or (ROWS if on_gpu else ROWS_CPU)
        self._seed = seed

    def write(
        self,
        conversations: Sequence[Sequence[Message]],
        samples: int,
        wrote: Wrote = lambda number, total: None,
    ) -> list[list[Sample]]:
        """The same seed gives the same texts for the same questions on the same machine. One whose
        question fills the window has an empty answer that is cut."""
        weights = self.weights
        found: list[list[Sample]] = [[] for _ in conversations]
        rows: list[_Row] = []
        for place, messages in enumerate(conversations):
            tokens = prompt_ids(weights.tokenizer, messages, self._chat_template)
            if len(tokens) >= weights.window:
                found[place] = [Sample("", "length", 0)] * samples
            else:
                rows += [_Row(place, tokens)] * samples
        # Of about one length in a batch, the longest first: what does not fit shows at once.
        rows.sort(key=lambda row: -len(row.tokens))
        total, at_once = len(rows), self._rows
        if not weights.on_device:
            weights.model.to(weights.device)
        with _own_randomness(weights.device, self._seed), torch.inference_mode():
            while rows:
                batch = rows[:at_once]
                try:
                    answers = self._batch([row.tokens for row in batch])
                except torch.OutOfMemoryError:
                    if at_once == 1:
                        raise
                    at_once = max(at_once // 2, 1)
                    torch.cuda.empty_cache()
                    continue
                for row, answer in zip(batch, answers, strict=True):
                    found[row.place].append(answer)
                rows = rows[len(batch) :]
                wrote(total - len(rows), total)
        return found

    def _batch(self, prompts: Sequence[list[int]]) -> list[Sample]:
        weights, sampling = self.weights, self._sampling
        longest = max(map(len, prompts))
        pad = _pad(weights)
        most = min(sampling.max_tokens, weights.window - longest)
        tokens = torch.tensor([[pad] * (longest - len(row)) + row for row in prompts])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in prompts])
        rows = weights.model.generate(  # type: ignore[call-arg]
            tokens.to(weights.device),
            attention_mask=mask.to(weights.device),
            generation_config=_generation(weights, sampling, most, pad),
        )
        return [
            read_sample(weights.tokenizer, row, weights.ends, sampling.stop, most)
            for row in rows[:, longest:].tolist()
        ]


def _pad(weights: Weights) -> int:
    pad = weights.tokenizer.pad_token_id
    if isinstance(pad, int):
        return pad
    return min(weights.ends) if weights.ends else 0


def _generation(weights: Weights, sampling: Sampling, most: int, pad: int) -> GenerationConfig:
    from transformers import GenerationConfig

    drawn = sampling.temperature > 0
    return GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=most,
        do_sample=drawn,
        temperature=sampling.temperature if drawn else None,
        top_p=sampling.top_p if drawn else None,
        top_k=0 if drawn else None,
        eos_token_id=sorted(weights.ends) or None,
        pad_token_id=pad,
    )


@contextmanager
def _own_randomness(device: torch.device, seed: int) -> Iterator[None]:
    """A training that goes on meanwhile draws as if nobody had been asked."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


__all__ = ["LocalWriter", "Writer"]
