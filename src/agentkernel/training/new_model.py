"""What is a model that is made from nothing: how many weights, in which shape?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkernel.domain.errors import TrainingError
from agentkernel.training.training import NewModel

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerBase


def make_new(new: NewModel, tokenizer: PreTrainedTokenizerBase, seed: int) -> LlamaForCausalLM:
    """A Llama with random weights in fp32, the same for the same `seed`; the first and the last
    matrix are one (tied), of as many rows as `tokenizer` has tokens.

    Raises TrainingError where the heads do not divide the hidden size into even parts.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    if new.hidden % (2 * new.heads):
        raise TrainingError(
            f"A hidden size of {new.hidden} does not fall into {new.heads} heads of an even size. "
            "Expected a multiple of twice new.heads. Next: another new.hidden or new.heads."
        )
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=new.hidden,
        intermediate_size=new.intermediate,
        num_hidden_layers=new.layers,
        num_attention_heads=new.heads,
        num_key_value_heads=new.heads,
        max_position_embeddings=new.window,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def parameters_of(new: NewModel, vocabulary: int | None = None) -> int:
    """How many weights `make_new` makes, without making them; a tied matrix counts once."""
    layer = 4 * new.hidden**2 + 3 * new.hidden * new.intermediate + 2 * new.hidden
    embedding = (new.vocabulary if vocabulary is None else vocabulary) * new.hidden
    return embedding + new.layers * layer + new.hidden


__all__ = ["make_new", "parameters_of"]
