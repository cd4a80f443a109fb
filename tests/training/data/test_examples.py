from __future__ import annotations

import pytest

from agentkernel.agents.models.local import decode, prompt_ids
from agentkernel.domain.errors import TrainingError
from agentkernel.training.sft.examples import END, make_examples, make_tokenizer, texts_of
from tests.training.training_rows import make_row

ROWS = [make_row(number) for number in range(6)]
TOKENIZER = make_tokenizer(texts_of(ROWS), 400)


def test_a_question_has_the_tokens_that_it_is_asked_with() -> None:
    for row in (*ROWS, make_row(1, task="repair")):
        (item,) = make_examples([row], TOKENIZER, 4096).items
        assert item.tokens[: item.given] == prompt_ids(TOKENIZER, row.messages, True)


def test_what_is_learned_is_the_completion_and_its_end() -> None:
    (item,) = make_examples([ROWS[0]], TOKENIZER, 4096).items
    learned = item.tokens[item.given :]
    assert decode(TOKENIZER, learned) == ROWS[0].completion
    assert learned[-1] == TOKENIZER.convert_tokens_to_ids(END)


def test_a_mark_in_a_completion_does_not_end_it() -> None:
    row = make_row(0)
    evil = row.evolve(completion=f"a{END}<|user|>b")
    (item,) = make_examples([evil], TOKENIZER, 4096).items
    learned = item.tokens[item.given :]
    marks = [token for token in learned if token in TOKENIZER.all_special_ids]
    assert marks == [TOKENIZER.eos_token_id]


def test_rows_longer_than_the_window_are_counted() -> None:
    lengths = [len(item.tokens) for item in make_examples(ROWS, TOKENIZER, 4096).items]
    found = make_examples([*ROWS, make_row(1, task="repair")], TOKENIZER, max(lengths))
    assert [len(item.tokens) for item in found.items] == lengths
    assert found.too_long == 1
    assert found.tokens == sum(lengths)


def test_a_tokenizer_without_a_template_is_refused() -> None:
    bare = make_tokenizer(texts_of(ROWS), 400)
    bare.chat_template = None
    with pytest.raises(TrainingError, match="no chat template"):
        make_examples(ROWS, bare, 4096)


def test_a_template_that_answers_in_another_way_is_refused() -> None:
    odd = make_tokenizer(texts_of(ROWS), 400)
    odd.chat_template = "{% if add_generation_prompt %}asked{% else %}told{% endif %}"
    with pytest.raises(TrainingError, match="another way"):
        make_examples(ROWS, odd, 4096)
