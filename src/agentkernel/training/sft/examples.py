"""Rows and tokenizer of a fine-tuning, and tokens of which only the completion's are learned.

A model that is made new gets a byte-level BPE tokenizer trained on the rows themselves: any
text can be written and comes back as it was. Each digit is a token of its own: sizes are copied
more surely digit by digit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from agentkernel.agents.models.local import escape_special_tokens
from agentkernel.domain.errors import TrainingError, one_line
from agentkernel.training import folder
from agentkernel.training.data.card import NearDuplicates, code_structure
from agentkernel.training.data.rows import (
    RIGHT,
    admitted,
    held_out_keys,
    held_out_problems,
    is_held_back,
    module_in,
    read_rows,
    with_replay,
)
from agentkernel.training.model import load_tokenizer
from agentkernel.training.settings import Say, TrainingRow, TrainingSettings

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast


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


HELD_OUT_ROWS = 256
"""Rows whose loss is looked at beside the training; their kernels are never learned."""


@dataclass(frozen=True)
class SftRows:
    """What is learned from, `replayed` of them older, and whose loss is looked at beside it."""

    learned: tuple[TrainingRow, ...]
    replayed: int
    held_out: tuple[TrainingRow, ...]


def read_sft_rows(data: Path, older: Path | None, settings: TrainingSettings, say: Say) -> SftRows:
    """All rows to learn from, each of them checked. Raises TrainingError."""
    licences, tasks = settings.data.licences, settings.sft.tasks

    def ours(row: TrainingRow) -> bool:
        return not is_held_back(row.problem_sha256, settings.rl.spared)

    there = tuple(admitted(read_rows(data, "train"), licences, tasks))
    fresh = tuple(filter(ours, there))
    if len(fresh) < len(there):
        say(f"{len(there) - len(fresh)} of {len(there)} rows are left to practice (rl.spared)")
    if not fresh:
        raise TrainingError(
            f"{str(data)!r} has no row of the tasks {', '.join(tasks)}. Expected some. Next: other "
            "sft.tasks, or more data."
        )
    before = () if older is None else tuple(admitted(read_rows(older, "train"), licences, tasks))
    known = {row.id for row in fresh}
    before = _apart(data, tuple(row for row in before if row.id not in known and ours(row)), say)
    rows = with_replay(fresh, before, settings.sft.replay, settings.sft.seed)
    say(f"{len(fresh)} rows" + (f" and {len(rows) - len(fresh)} older ones" if older else ""))
    return SftRows(rows, len(rows) - len(fresh), _held_out(data, settings))


def _apart(data: Path, older: tuple[TrainingRow, ...], say: Say) -> tuple[TrainingRow, ...]:
    """Of `older` rows those on modules that `data` does not hold out, and that are not built like
    one of these or written nearly so. How many others there are is said."""
    if not older:
        return ()
    hashes, structures = held_out_keys(data)
    texts = [path.read_text(encoding="utf-8") for path in held_out_problems(data)]
    structures |= {code_structure(text) for text in texts} - {""}
    like = NearDuplicates(texts)
    found: dict[str, bool] = {}

    def kin(row: TrainingRow) -> bool:
        key = row.problem_sha256
        if key in hashes or row.structure in structures:
            return True
        if key not in found:
            text = module_in(row.messages[0].text, key)
            # A module that cannot be seen may be any: its rows are not taken.
            found[key] = text is None or code_structure(text) in structures or like.near(text)
        return found[key]

    kept = tuple(row for row in older if not kin(row))
    if len(kept) < len(older):
        say(
            f"{len(older) - len(kept)} of {len(older)} older rows left out: of a module that is "
            "held out here, or of one like it"
        )
    return kept


def _held_out(data: Path, settings: TrainingSettings) -> tuple[TrainingRow, ...]:
    if not (data / "held-out.jsonl.gz").is_file():
        return ()
    found = (
        row
        for row in read_rows(data, "held-out")
        if row.label in RIGHT and row.task in settings.sft.tasks
    )
    return tuple(row for _, row in zip(range(HELD_OUT_ROWS), found, strict=False))
