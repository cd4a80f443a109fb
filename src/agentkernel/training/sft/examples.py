"""How does a row become tokens, of which only the completion's count for the loss?"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from agentkernel.agents.models.local_text import escape_special_tokens
from agentkernel.domain.errors import TrainingError, one_line
from agentkernel.training.training import TrainingRow

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

IGNORED = -100
"""The label of a token that no loss is taken of: torch's own `ignore_index`."""
AT_ONCE = 1024
"""Rows that the tokenizer gets in one call."""


class Example(NamedTuple):
    """The tokens of one conversation, the first `given` of which are only read."""

    tokens: list[int]
    given: int


class Examples(NamedTuple):
    """What is learned from, and how many rows did not fit the window."""

    items: tuple[Example, ...]
    too_long: int

    @property
    def tokens(self) -> int:
        """All tokens of one pass."""
        return sum(len(item.tokens) for item in self.items)


def make_examples(
    rows: Sequence[TrainingRow], tokenizer: PreTrainedTokenizerBase, window: int
) -> Examples:
    """`rows` in the tokenizer's own template. The prompt has the very tokens that it has when the
    model is asked (`local_text.prompt_ids`): it is cut into tokens apart from the completion.

    A row of more than `window` tokens is left out. Raises TrainingError where the tokenizer has no
    template, or one that begins an answer in another way than it asks for one.
    """
    items: list[Example] = []
    for begin in range(0, len(rows), AT_ONCE):
        some = rows[begin : begin + AT_ONCE]
        texts = [_texts(row, tokenizer) for row in some]
        given = _cut([given for given, _ in texts], tokenizer)
        learned = _cut([learned for _, learned in texts], tokenizer)
        items += [
            Example([*before, *after], len(before))
            for before, after in zip(given, learned, strict=True)
        ]
    fitting = tuple(item for item in items if len(item.tokens) <= window)
    return Examples(fitting, len(items) - len(fitting))


def _cut(texts: list[str], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    encoded = tokenizer(texts, add_special_tokens=False, return_attention_mask=False)
    found: list[list[int]] = encoded["input_ids"]
    return found


def _texts(row: TrainingRow, tokenizer: PreTrainedTokenizerBase) -> tuple[str, str]:
    """What is given and what is learned; a mark in either is broken up, as in a question."""
    turns = [
        {"role": turn.role, "content": escape_special_tokens(tokenizer, turn.text)}
        for turn in row.messages
    ]
    answer = {"role": "assistant", "content": escape_special_tokens(tokenizer, row.completion)}
    given = _template(tokenizer, turns, asking=True)
    whole = _template(tokenizer, [*turns, answer], asking=False)
    if not whole.startswith(given):
        raise TrainingError(
            "The model's chat template begins an answer in another way than it asks for one "
            f"(it asks with {given[-40:]!r}). Expected the question to be the answer's beginning. "
            "Next: a tokenizer with such a template."
        )
    return given, whole[len(given) :]


def _template(
    tokenizer: PreTrainedTokenizerBase, turns: list[dict[str, str]], *, asking: bool
) -> str:
    from jinja2 import TemplateError

    if tokenizer.chat_template is None:
        raise TrainingError(
            f"The tokenizer of {tokenizer.name_or_path!r} has no chat template. Expected an "
            "instruction-tuned model. Next: the -Instruct model of that name."
        )
    try:
        return str(
            tokenizer.apply_chat_template(turns, add_generation_prompt=asking, tokenize=False)
        )
    except TemplateError as error:
        raise TrainingError(
            f"The model's chat template refuses a row: {one_line(error)}. Expected turns of user "
            "and assistant. Next: another model."
        ) from error


def as_dataset(items: Sequence[Example]) -> Dataset:
    """The columns that TRL's trainer takes as they are: `input_ids` and `labels`."""
    import pyarrow as pa
    from datasets import Dataset
    from datasets.table import InMemoryTable

    ends = np.cumsum([0, *(len(item.tokens) for item in items)], dtype=np.int32)
    tokens = np.fromiter(chain.from_iterable(item.tokens for item in items), np.int32, ends[-1])
    labels = tokens.copy()
    for begin, item in zip(ends, items, strict=False):
        labels[begin : begin + item.given] = IGNORED
    columns = {
        name: pa.ListArray.from_arrays(pa.array(ends), pa.array(flat))
        for name, flat in (("input_ids", tokens), ("labels", labels))
    }
    # A name for it spares the library from hashing all of it, and the code around it.
    name = hashlib.sha256(labels.tobytes()).hexdigest()
    return Dataset(InMemoryTable(pa.table(columns)), fingerprint=name[:16])


__all__ = ["IGNORED", "Example", "Examples", "as_dataset", "make_examples"]
