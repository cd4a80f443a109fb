"""Which tokens does a model that is made from nothing read and write?

Byte-level BPE, trained on the rows themselves: any text can be written, and comes back as it was.
Digits stand alone, since sizes are copied digit by digit more surely than by chance.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from agentkernel.domain.errors import TrainingError
from agentkernel.training.training import TrainingRow

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, END = "<|pad|>", "<|end|>"
ROLES = ("system", "user", "assistant")
MARKS = (PAD, END, *(f"<|{role}|>" for role in ROLES))
"""The special tokens, in the order of their ids."""
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
BYTES = 256
LEAST = BYTES + len(MARKS)


def texts_of(rows: Iterable[TrainingRow]) -> Iterable[str]:
    """All that a model reads and writes in `rows`."""
    for row in rows:
        yield from (message.text for message in row.messages)
        yield row.completion


def make_tokenizer(
    texts: Iterable[str], vocabulary: int, window: int | None = None
) -> PreTrainedTokenizerFast:
    """A tokenizer of at most `vocabulary` tokens (fewer where `texts` hold too little), the same
    for the same texts. Raises TrainingError for a vocabulary without room for the bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    if vocabulary < LEAST:
        raise TrainingError(
            f"A vocabulary of {vocabulary} tokens has no room for {BYTES} bytes and {len(MARKS)} "
            f"marks. Expected at least {LEAST}. Next: a larger new.vocabulary."
        )
    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    bare.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        special_tokens=list(MARKS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bare.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bare,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[mark for mark in MARKS if mark not in (PAD, END)],
        clean_up_tokenization_spaces=False,
        padding_side="left",
        **({} if window is None else {"model_max_length": window}),
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


__all__ = ["END", "MARKS", "PAD", "TEMPLATE", "make_tokenizer", "texts_of"]
