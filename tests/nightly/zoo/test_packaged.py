from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from agentkernel.domain.nightly import Zoo, ZooModel
from agentkernel.nightly.zoo.loader import LoadedModel, flat_outputs, load_model
from agentkernel.nightly.zoo.reader import read_zoo
from tests.nightly.zoo.calls import run_call

MILLIONS = {
    "bert": 109.5,
    "gpt2": 124.4,
    "llama": 552.1,
    "mistral": 392.7,
    "qwen2": 207.6,
    "mixtral": 395.6,
    "t5": 60.5,
    "vit": 86.4,
    "clip": 151.3,
    "whisper": 72.6,
    "mamba": 61.2,
    "unet": 90.1,
}
"""Parameters of each packaged model."""
LLAMA_LIKE: dict[str, object] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
BERT_LIKE: dict[str, object] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
MOE: dict[str, object] = {**LLAMA_LIKE, "num_local_experts": 4}
IDS = ["input_ids=i64[2,16]<64"]
SMALL: dict[str, tuple[dict[str, object], list[str]]] = {
    "bert": ({**BERT_LIKE, "vocab_size": 64}, IDS),
    "gpt2": ({"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}, IDS),
    "llama": (LLAMA_LIKE, IDS),
    "mistral": (LLAMA_LIKE, IDS),
    "qwen2": (LLAMA_LIKE, IDS),
    "mixtral": (MOE, IDS),
    "t5": (
        {
            "vocab_size": 64,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 64,
            "num_layers": 2,
            "num_decoder_layers": 2,
            "num_heads": 4,
        },
        [*IDS, "decoder_input_ids=i64[2,8]<64"],
    ),
    "vit": ({**BERT_LIKE, "image_size": 32, "patch_size": 8}, ["pixel_values=f32[2,3,32,32]"]),
    "clip": (
        {
            "projection_dim": 16,
            "text_config": {**BERT_LIKE, "vocab_size": 64, "max_position_embeddings": 16},
            "vision_config": {**BERT_LIKE, "image_size": 32, "patch_size": 8},
        },
        [*IDS, "pixel_values=f32[2,3,32,32]"],
    ),
    "whisper": (
        {
            "vocab_size": 64,
            "pad_token_id": 0,
            "num_mel_bins": 8,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "max_source_positions": 16,
        },
        ["input_features=f32[2,8,32]", "decoder_input_ids=i64[2,8]<64"],
    ),
    "mamba": ({"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2}, IDS),
    "unet": (
        {"channels": [16, 32], "heads": 2, "text_width": 24},
        ["latents=f32[2,4,8,8]", "step=f32[2]", "text=f32[2,5,24]"],
    ),
}
"""What replaces the packaged sizes, and the inputs that go with them."""


def small(name: str, **more: object) -> LoadedModel:
    """The packaged model `name`, with small sizes and the init arguments `more`."""
    zoo = read_zoo(Path("transformers"))
    model = next(item for item in zoo.models if item.name == name)
    sizes, inputs = SMALL[name]
    values = {**model.model_dump(), "init": {**model.init, **sizes, **more}, "inputs": inputs}
    return load_model(zoo, ZooModel.model_validate(values))


def test_the_tiny_zoo_runs() -> None:
    zoo = read_zoo(Path("tiny"))
    assert [model.name for model in zoo.models] == [
        "transformer-block",
        "residual-mlp",
        "conv-block",
    ]
    for model in zoo.models:
        item = load_model(zoo, model)
        call = item.make_call()
        (output,) = flat_outputs(run_call(item.build(), call))
        assert output.shape == call.kwargs["x"].shape  # type: ignore[attr-defined]
        assert torch.isfinite(output).all()


def shapes_of(zoo: Zoo, name: str, part: str) -> set[tuple[object, ...]]:
    """Shapes of operands and parameters of every submodule whose class is called `part`."""
    item = load_model(zoo, next(model for model in zoo.models if model.name == name))
    module, seen = item.build(), set[tuple[object, ...]]()

    def note(part: nn.Module, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        state = tuple(value.shape for value in part.state_dict().values())
        seen.add((tuple((x.shape, x.stride()) for x in args), state, output.shape))

    for child in module.modules():
        if type(child).__name__ == part:
            child.register_forward_hook(note)
    run_call(module, item.make_call())
    return seen


@pytest.mark.parametrize("part", ["FeedForward", "BiasGelu", "ResidualNorm"])
def test_two_models_of_the_tiny_zoo_share_regions(part: str) -> None:
    zoo = read_zoo(Path("tiny"))
    block, mlp = (shapes_of(zoo, name, part) for name in ("transformer-block", "residual-mlp"))
    assert len(block) == 1
    assert block == mlp


def test_the_packaged_sizes_are_those_that_are_named() -> None:
    zoo = read_zoo(Path("transformers"))
    assert [model.name for model in zoo.models] == list(MILLIONS)
    for model in zoo.models:
        module = load_model(zoo, model).build("meta")
        count = sum(item.numel() for item in module.parameters()) / 1e6
        assert count == pytest.approx(MILLIONS[model.name], abs=0.1), model.name


@pytest.mark.slow
def test_the_packaged_shapes_fit() -> None:
    """No forward reads a value back, which would also cost a GPU its lead over Python."""
    zoo = read_zoo(Path("transformers"))
    for model in zoo.models:
        item = load_model(zoo, model)
        flat_outputs(run_call(item.build("meta"), item.make_call("meta")))


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", SMALL)
def test_each_architecture_runs_at_a_small_size(name: str) -> None:
    item = small(name)
    outputs = flat_outputs(run_call(item.build(), item.make_call()))
    assert all(torch.isfinite(output).all() for output in outputs)
    again = flat_outputs(run_call(item.build(), item.make_call()))
    assert all(map(torch.equal, outputs, again))


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "qwen2", "mixtral", "whisper"])
def test_without_masks_a_decoder_computes_the_same(name: str) -> None:
    outputs = [
        flat_outputs(run_call(item.build(), item.make_call()))
        for item in (small(name, masks=masks) for masks in (False, True))
    ]
    assert len(outputs[0]) == (2 if name == "whisper" else 1), "no cache is returned"
    assert all(map(torch.equal, *outputs))
