from __future__ import annotations

import pytest
import torch
from torch import nn

from agentkernel.domain.errors import TrainingError
from agentkernel.training.decoding.llama import add_dropout, as_plain_llama
from agentkernel.training.model_shape import make_new
from agentkernel.training.settings import NewModel
from agentkernel.training.sft.examples import make_tokenizer
from agentkernel.training.sft.trainer import compile_layers

TINY = NewModel(vocabulary=300, hidden=16, layers=2, heads=2, intermediate=32, window=64)
TOKENIZER = make_tokenizer(["x = 1\n"], 300)
WORDS = torch.arange(12)[None]


def test_a_share_is_left_out_in_training_alone_and_no_weight_is_added() -> None:
    model, plain = (make_new(TINY, TOKENIZER, seed=0) for _ in range(2))
    assert add_dropout(model, 0.5) == 1 + 2 * TINY.layers
    with torch.no_grad():
        right = plain(WORDS).logits
        assert torch.equal(model.eval()(WORDS).logits, right)
        first, second = (model.train()(WORDS).logits for _ in range(2))
    assert not torch.equal(first, right)
    assert not torch.equal(first, second)
    assert set(model.state_dict()) == set(plain.state_dict())


def test_of_each_place_the_share_is_zero_and_the_others_keep_the_mean() -> None:
    model = make_new(TINY, TOKENIZER, seed=0).train()
    add_dropout(model, 0.25)
    words = torch.ones(64, 64, dtype=torch.long)
    plain = model.model.embed_tokens.weight[1]
    found = model.model.embed_tokens(words)
    assert 0.24 < (found == 0).float().mean() < 0.26
    torch.testing.assert_close(found.detach().mean((0, 1)), plain.detach(), rtol=0.1, atol=1e-4)


@pytest.mark.slow
def test_compiled_layers_leave_out_too() -> None:
    model = make_new(TINY, TOKENIZER, seed=0).train()
    add_dropout(model, 0.5)
    with torch.no_grad():
        right = model.eval()(WORDS).logits
        compile_layers(model, "eager")
        first, second = (model.train()(WORDS).logits for _ in range(2))
        assert not torch.equal(first, second)
        torch.testing.assert_close(model.eval()(WORDS).logits, right)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_an_adapters_part_of_a_layer_is_left_out_too() -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["o_proj"], init_lora_weights=False)
    model = peft.get_peft_model(make_new(TINY, TOKENIZER, seed=0), config).train()
    assert add_dropout(model, 0.5) == 1 + 2 * TINY.layers
    layer = model.get_base_model().model.layers[0].self_attn.o_proj
    assert 0.2 < (layer(torch.rand(64, TINY.hidden)) == 0).float().mean() < 0.8


def test_nothing_is_hung_on_for_a_share_of_0() -> None:
    model = make_new(TINY, TOKENIZER, seed=0)
    assert add_dropout(model, 0.0) == 0
    assert not any(item._forward_hooks for item in model.modules())


def test_a_model_that_leaves_out_is_decoded_as_the_plain_one_it_is_when_it_answers() -> None:
    model = make_new(TINY, TOKENIZER, seed=0)
    add_dropout(model, 0.5)
    assert as_plain_llama(model) is model
    model.model.norm.register_forward_hook(lambda module, given, found: found * 2)
    assert as_plain_llama(model) is None


def test_a_model_without_such_layers_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"sft\.dropout is 0\.1, and Linear has no layers"):
        add_dropout(nn.Linear(2, 2), 0.1)
