"""Which tokenizer cuts the rows of a fine-tuning, and what does it make of them?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.domain.errors import TrainingError
from agentkernel.training import folder
from agentkernel.training.loading import load_tokenizer
from agentkernel.training.sft.examples import Examples, make_examples
from agentkernel.training.sft.tokens import make_tokenizer, texts_of
from agentkernel.training.training import TrainingRow, TrainingSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Say = Callable[[str], None]
VOCABULARY_ROWS = 20_000
"""Rows that a tokenizer of one's own is made from: more do not change the most frequent pairs."""


def tokenizer_of(
    settings: TrainingSettings, rows: tuple[TrainingRow, ...], out: Path, say: Say
) -> PreTrainedTokenizerBase:
    """The named model's, or one that is made from the rows, once for each training."""
    if settings.model is not None:
        return load_tokenizer(settings.model)
    from transformers import AutoTokenizer

    assert settings.new is not None
    kept = out / folder.TOKENIZER
    if not kept.is_dir():
        step = -(-len(rows) // VOCABULARY_ROWS)
        made = make_tokenizer(texts_of(rows[::step]), settings.new.vocabulary, settings.new.window)
        say(f"a tokenizer of {len(made)} tokens, made from the rows")
        folder.save_tokenizer(out, made)
    found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(kept), local_files_only=True)
    return found


def examples_of(
    rows: tuple[TrainingRow, ...], tokenizer: PreTrainedTokenizerBase, window: int, say: Say
) -> Examples:
    """What is learned from. Raises TrainingError where no row fits the `window`, in tokens."""
    found = make_examples(rows, tokenizer, window)
    if not found.items:
        raise TrainingError(
            f"None of {len(rows)} rows fits a window of {window} tokens. Expected some. Next: a "
            "larger sft.window."
        )
    if found.too_long:
        say(f"{found.too_long} of {len(rows)} rows left out: more than {window} tokens")
    return found


__all__ = ["examples_of", "tokenizer_of"]
