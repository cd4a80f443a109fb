"""A causal language model small enough for a test: Qwen2 with random weights, and an adapter."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

END, BEGIN = "<|im_end|>", "<|im_start|>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WINDOW = 256


def make_model(
    folder: Path, chat_template: bool = True, seed: int = 0, window: int = WINDOW
) -> Path:
    """Saves weights (safetensors) and a byte-level BPE tokenizer; the model writes nonsense."""
    tokenizer = make_tokenizer(chat_template)
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=window,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        # Steeper than at birth, so that greedy choices and draws have something to go by.
        model.lm_head.weight.mul_(8.0)
        model.lm_head.weight[tokenizer.eos_token_id] = 0.0
    # What a hub's model brings along and a question must not be changed by.
    model.generation_config.update(do_sample=True, top_k=1, repetition_penalty=5.0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_tokenizer(chat_template: bool) -> PreTrainedTokenizerFast:
    """Trained on this package's own Python."""
    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|pad|>", BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bare.train_from_iterator([Path(__file__).read_text()], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bare, eos_token=END, pad_token="<|pad|>", additional_special_tokens=[BEGIN]
    )
    if chat_template:
        tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_adapter(base: Path, folder: Path) -> Path:
    """A LoRA adapter that changes what the model of `base` says; needs peft."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(1)
    shape = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        model = get_peft_model(Qwen2ForCausalLM.from_pretrained(base), shape)
        model.save_pretrained(folder)
    return folder
