"""How does a conversation become a model's tokens, and how do its tokens become text again?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from jinja2 import TemplateError
from transformers import BatchEncoding, StoppingCriteria

from agentkernel.domain.errors import ModelUnavailable, one_line
from agentkernel.domain.exchange import Finish, Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Sample(NamedTuple):
    """One text, why it ends, and how many tokens were generated for it."""

    text: str
    finish: Finish
    tokens: int


def prompt_ids(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], chat_template: bool
) -> list[int]:
    """The conversation in the tokenizer's template, or one paragraph after the other.

    Raises ModelUnavailable where the template has no place for a role.
    """
    turns = [(turn.role, escape_special_tokens(tokenizer, turn.text)) for turn in messages]
    if chat_template and tokenizer.chat_template is not None:
        try:
            written = tokenizer.apply_chat_template(
                [{"role": role, "content": text} for role, text in turns],
                add_generation_prompt=True,
                tokenize=False,
            )
        except TemplateError as error:
            raise ModelUnavailable(
                f"The model's chat template refuses this conversation: {one_line(error)}. "
                "Next: 'chat_template: false' in a preset, see docs/models.md."
            ) from error
        # The template has put the marks of begin and end where they belong.
        encoded = tokenizer(str(written), add_special_tokens=False)
    else:
        encoded = tokenizer("\n\n".join(text for _, text in turns))
    assert isinstance(encoded, BatchEncoding)
    return [int(token) for token in encoded["input_ids"]]


def escape_special_tokens(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    """`text` with a blank inside whatever the tokenizer would read as a mark of its own, so that a
    comment in a user's module cannot end its turn and begin another's."""
    marks = {
        token.content
        for token in tokenizer.added_tokens_decoder.values()
        if len(token.content) > 1 and (token.special or token.content.startswith("<|"))
    }
    if not marks:
        return text
    pattern = "|".join(re.escape(mark) for mark in sorted(marks, key=len, reverse=True))
    return re.sub(pattern, lambda found: f"{found[0][0]} {found[0][1:]}", text)


def decode(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int]) -> str:
    """The text of `tokens` as it stands, without marks."""
    return str(
        tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    )


def first_stop(text: str, stop: Sequence[str]) -> int | None:
    """Where the first stop string begins in `text`."""
    return min((text.index(word) for word in stop if word in text), default=None)


def read_sample(
    tokenizer: PreTrainedTokenizerBase,
    row: Sequence[int],
    ends: frozenset[int],
    stop: Sequence[str],
    most: int,
) -> Sample:
    """One row of generated tokens, whose batch may have gone on after its end."""
    end = next((place for place, token in enumerate(row) if token in ends), None)
    text = decode(tokenizer, row[:end])
    cut = first_stop(text, stop)
    if cut is not None:
        return Sample(text[:cut], "stop", _tokens_to(tokenizer, row[:end], stop))
    if end is not None:
        return Sample(text, "stop", end + 1)
    return Sample(text, "length" if len(row) >= most else "cut", len(row))


def _tokens_to(tokenizer: PreTrainedTokenizerBase, row: Sequence[int], stop: Sequence[str]) -> int:
    """How many tokens it took until a stop string was there: a bisection, as text only grows."""
    low, high = 1, len(row)
    while low < high:
        middle = (low + high) // 2
        if first_stop(decode(tokenizer, row[:middle]), stop) is None:
            low = middle + 1
        else:
            high = middle
    return low


class StopAt(StoppingCriteria):
    """Ends a row once a stop string stands in what was generated for it."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str], prompt: int
    ) -> None:
        self._tokenizer, self._stop, self._prompt = tokenizer, stop, prompt
        # A token holds a byte at least, so no stop string reaches further back.
        self._reach = max(len(word.encode()) for word in stop) + 1

    def __call__(
        self,
        input_ids: torch.LongTensor,
        scores: tuple[torch.Tensor] | None,
        **kwargs: object,
    ) -> torch.BoolTensor:
        begin = max(self._prompt, input_ids.shape[1] - self._reach)
        there = [
            first_stop(decode(self._tokenizer, row), self._stop) is not None
            for row in input_ids[:, begin:].tolist()
        ]
        return torch.BoolTensor(there).to(input_ids.device)  # type: ignore[return-value]


__all__ = [
    "Sample",
    "StopAt",
    "decode",
    "escape_special_tokens",
    "first_stop",
    "prompt_ids",
    "read_sample",
]
