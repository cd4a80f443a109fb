"""Which tokens does a model in training write to many conversations at once?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple, Protocol

from agentkernel.agents.models.local_text import decode, prompt_ids
from agentkernel.domain.exchange import Message
from agentkernel.training.decoding import TokenSampling, answer_all

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class SampledAnswer(NamedTuple):
    """An answer as tokens and text. `answer` ends with the token that ended it, where there was
    one; empty where the conversation fills the window."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    text: str


class ConversationWriter(Protocol):
    """Whoever answers each of many conversations once."""

    def write(self, conversations: Sequence[Sequence[Message]], seed: int) -> list[SampledAnswer]:
        """The answers, in order; the same `seed` gives the same ones."""
        ...


class ModelWriter:
    """A model in memory, as it is being trained. `ends` are the tokens that end an answer, `window`
    the tokens that it can see; `autocast` makes it compute as it does while it learns."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        drawing: TokenSampling,
        *,
        ends: Sequence[int],
        window: int,
        autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
        chat_template: bool = True,
    ) -> None:
        self._model, self._tokenizer, self._drawing = model, tokenizer, drawing
        self._ends, self._window, self._autocast = frozenset(ends), window, autocast
        self._chat_template = chat_template

    def write(self, conversations: Sequence[Sequence[Message]], seed: int) -> list[SampledAnswer]:
        prompts = [prompt_ids(self._tokenizer, item, self._chat_template) for item in conversations]
        with self._autocast():
            answers = answer_all(
                self._model,
                prompts,
                self._drawing,
                ends=self._ends,
                window=self._window,
                seed=seed,
            )
        return [
            SampledAnswer(tuple(prompt), tuple(answer), self._text(answer))
            for prompt, answer in zip(prompts, answers, strict=True)
        ]

    def _text(self, answer: Sequence[int]) -> str:
        return decode(self._tokenizer, [item for item in answer if item not in self._ends])


__all__ = ["ConversationWriter", "ModelWriter", "SampledAnswer", "TokenSampling"]
