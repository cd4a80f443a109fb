from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from agentkernel.training.model_shape import make_new, new_shape
from agentkernel.training.settings import NewModel, load_training
from agentkernel.training.sft.examples import make_tokenizer

TINY = NewModel(vocabulary=300, hidden=16, layers=2, heads=2, intermediate=32, window=64)
TOKENIZER = make_tokenizer(["x = 1\n"], 300)


def test_it_has_as_many_weights_as_computed_and_one_matrix_at_both_ends() -> None:
    model = make_new(TINY, TOKENIZER, seed=0)
    weights = sum(item.numel() for item in model.parameters())
    assert weights == new_shape(TINY.evolve(vocabulary=len(TOKENIZER))).parameters
    assert model.model.embed_tokens.weight is model.lm_head.weight


def test_a_seed_gives_the_same_weights_and_leaves_others_their_randomness() -> None:
    torch.manual_seed(7)
    first, before = make_new(TINY, TOKENIZER, seed=1), torch.rand(1)
    torch.manual_seed(7)
    assert torch.rand(1) == before
    second, other = make_new(TINY, TOKENIZER, seed=1), make_new(TINY, TOKENIZER, seed=2)
    pairs = list(zip(first.parameters(), second.parameters(), strict=True))
    assert all(torch.equal(one, two) for one, two in pairs)
    assert not torch.equal(next(first.parameters()), next(other.parameters()))


def test_the_packaged_small_model_has_at_most_25_million_weights() -> None:
    new = load_training("small").new
    assert new is not None
    assert new.vocabulary == 4096
    assert 20e6 < new_shape(new).parameters <= 25e6


def test_heads_that_do_not_divide_the_hidden_size_are_refused() -> None:
    with pytest.raises(ValidationError, match="5 heads"):
        NewModel(hidden=16, heads=5)
