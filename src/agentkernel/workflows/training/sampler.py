"""Which tokens does a model in training write to many conversations at once?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

from agentkernel.agents.models.local_text import decode, prompt_ids
from agentkernel.domain.exchange import Message

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ROWS = 512
"""Answers that are written at once on a GPU: a step of a small model takes as long for one."""
ROWS_CPU = 64


class Written(NamedTuple):
    """An answer as tokens and text. `answer` ends with the token that ended it, where there was
    one; empty where the conversation fills the window."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    text: str


class Writer(Protocol):
    """Whoever answers each of many conversations once."""

    def write(self, conversations: Sequence[Sequence[Message]], seed: int) -> list[Written]:
        """The answers, in order; the same `seed` gives the same ones."""
        ...


@dataclass(frozen=True)
class Drawing:
    """How tokens are drawn, and how many at most."""

    temperature: float
    top_p: float
    most_tokens: int


class ModelWriter:
    """A model in memory, as it is being trained. `ends` are the tokens that end an answer, `window`
    the tokens that it can see; `autocast` makes it compute as it does while it learns."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        drawing: Drawing,
        *,
        ends: Sequence[int],
        window: int,
        autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
        chat_template: bool = True,
    ) -> None:
        self._model, self._tokenizer, self._drawing = model, tokenizer, drawing
        self._ends, self._window, self._autocast = frozenset(ends), window, autocast
        self._chat_template = chat_template
        pad = tokenizer.pad_token_id
        self._pad = pad if isinstance(pad, int) else min(self._ends, default=0)

    def write(self, conversations: Sequence[Sequence[Message]], seed: int) -> list[Written]:
        """Of about one length at a time, the longest first: what does not fit shows at once."""
        prompts = [prompt_ids(self._tokenizer, item, self._chat_template) for item in conversations]
        found = [Written(tuple(item), (), "") for item in prompts]
        left = [place for place, item in enumerate(prompts) if len(item) < self._window]
        left.sort(key=lambda place: (-len(prompts[place]), place))
        device = next(self._model.parameters()).device
        at_once = ROWS if device.type == "cuda" else ROWS_CPU
        with _writing(self._model, device, seed), torch.no_grad(), self._autocast():
            while left:
                batch = left[:at_once]
                try:
                    answers = self._batch([prompts[place] for place in batch], device)
                except torch.OutOfMemoryError:
                    if at_once == 1:
                        raise
                    at_once = max(at_once // 2, 1)
                    torch.cuda.empty_cache()
                    continue
                for place, answer in zip(batch, answers, strict=True):
                    text = decode(
                        self._tokenizer, [item for item in answer if item not in self._ends]
                    )
                    found[place] = Written(tuple(prompts[place]), tuple(answer), text)
                left = left[len(batch) :]
        return found

    def _batch(self, prompts: Sequence[list[int]], device: torch.device) -> list[list[int]]:
        from transformers import GenerationConfig

        longest = max(map(len, prompts))
        drawing = self._drawing
        chosen = GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=min(drawing.most_tokens, self._window - longest),
            do_sample=True,
            temperature=drawing.temperature,
            top_p=drawing.top_p,
            top_k=0,
            eos_token_id=sorted(self._ends) or None,
            pad_token_id=self._pad,
        )
        tokens = torch.tensor([[self._pad] * (longest - len(row)) + row for row in prompts])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in prompts])
        rows = self._model.generate(  # type: ignore[operator]
            tokens.to(device), attention_mask=mask.to(device), generation_config=chosen
        )
        return [self._cut(row) for row in rows[:, longest:].tolist()]

    def _cut(self, row: list[int]) -> list[int]:
        """Up to the token that ends it: the batch may have gone on for the others."""
        end = next((place for place, token in enumerate(row) if token in self._ends), len(row))
        return row[: end + 1]


@contextmanager
def _writing(model: PreTrainedModel, device: torch.device, seed: int) -> Iterator[None]:
    """The model as it answers, drawing from `seed`; the training draws on as if nobody had asked.
    What the folder of the weights says about sampling does not count meanwhile."""
    from transformers import GenerationConfig

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


__all__ = ["Drawing", "ModelWriter", "Writer", "Written"]
