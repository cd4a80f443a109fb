from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.agents.models.local import decode, escape_special_tokens, prompt_ids
from agentkernel.domain.errors import TrainingError
from agentkernel.domain.exchange import Message
from agentkernel.training.sft.examples import LEAST, MARKS, make_tokenizer, texts_of
from tests.training.training_rows import make_row

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerFast

ROWS = [make_row(number) for number in range(10)]
MADE = make_tokenizer(texts_of(ROWS), 400)
MARK_TEXT = st.lists(st.sampled_from([*MARKS, "<|", "|>", "<", "a", " ", "\n"])).map("".join)


def _ids(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


@given(st.text())
@settings(deadline=None, max_examples=50)
def test_any_text_comes_back_as_it_was(text: str) -> None:
    clean = escape_special_tokens(MADE, text)
    assert decode(MADE, _ids(MADE, clean)) == clean


@given(MARK_TEXT)
@settings(deadline=None, max_examples=50)
def test_no_mark_is_smuggled_in_by_a_text(text: str) -> None:
    marks = {MADE.convert_tokens_to_ids(mark) for mark in MARKS}
    assert not marks & set(_ids(MADE, escape_special_tokens(MADE, text)))
    tokens = prompt_ids(MADE, [Message(role="user", text=text)], chat_template=True)
    assert [token for token in tokens if token in marks] == [
        MADE.convert_tokens_to_ids(mark) for mark in ("<|user|>", "<|end|>", "<|assistant|>")
    ]


def test_rows_come_back_and_are_shorter_in_tokens() -> None:
    for text in texts_of(ROWS):
        tokens = _ids(MADE, text)
        assert decode(MADE, tokens) == text
        assert len(tokens) < len(text.encode()) / 2


def test_digits_stand_alone() -> None:
    # 256 stands in every row.
    assert len(_ids(MADE, "256")) == 3


def test_the_same_rows_give_the_same_tokens_and_a_saved_one_reads_as_before(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    again = make_tokenizer(texts_of(ROWS), 400)
    assert again.get_vocab() == MADE.get_vocab()
    MADE.save_pretrained(str(tmp_path))
    read = AutoTokenizer.from_pretrained(str(tmp_path), local_files_only=True)
    turns = [Message(role="user", text="def f(x):\n    return x  # 12 <|end|>\n")]
    assert prompt_ids(read, turns, True) == prompt_ids(MADE, turns, True)
    assert read.eos_token_id == MADE.eos_token_id


def test_a_vocabulary_without_room_for_the_bytes_is_refused() -> None:
    with pytest.raises(TrainingError, match=f"at least {LEAST}"):
        make_tokenizer(["x"], LEAST - 1)
