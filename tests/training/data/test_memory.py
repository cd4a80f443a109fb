"""The memory of a training, part by part."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch

from agentkernel.training import cost
from agentkernel.training.cost import (
    GIB,
    Memory,
    key_value_bytes,
    layer_bytes,
    rl_memory,
    sft_memory,
)
from agentkernel.training.decoding import decoder
from agentkernel.training.settings import Lora, RlSettings, SftSettings
from tests.training import model_shapes
from tests.training.model_shapes import LLAMA, QWEN, made, sizes_of

TINY = model_shapes.TINY.evolve(
    hidden=128, heads=4, key_heads=2, head_size=32, intermediate=384, vocabulary=64, window=256
)
Method = Literal["full", "lora", "qlora"]


def sft(method: Method = "full", batch: int = 1, window: int = 256) -> SftSettings:
    lora = Lora(rank=4, alpha=8)
    return SftSettings(method=method, batch=batch, window=window, lora=lora)


def part_gib(found: Memory, name: str) -> float:
    return next((part.gib for part in found.parts if part.name == name), 0.0)


def test_as_many_answers_are_written_at_once_as_the_sampler_writes() -> None:
    assert cost.SAMPLED_ROWS == decoder.ROWS


def test_16_bytes_a_weight_and_a_copy_where_all_are_trained() -> None:
    found = sft_memory(LLAMA, sft(), 1, 80)
    state = sum(part_gib(found, name) for name in ("weights", "gradients", "optimizer states"))
    assert state * GIB == pytest.approx(16 * 8_030_261_248)
    copies = 2 * LLAMA.matrix_weights
    assert part_gib(found, "copies in 16 bits") * GIB == pytest.approx(copies)
    assert not found.fits


def test_gpus_share_what_is_trained_of_a_large_model_and_of_no_other() -> None:
    one, eight = sft_memory(LLAMA, sft(), 1, 80), sft_memory(LLAMA, sft(), 8, 80)
    for name in ("weights", "gradients", "optimizer states"):
        assert part_gib(eight, name) == pytest.approx(part_gib(one, name) / 8)
    assert part_gib(eight, "activations") == part_gib(one, "activations")
    assert eight.fits
    assert sft_memory(LLAMA, sft("lora"), 8, 80) == sft_memory(LLAMA, sft("lora"), 1, 80)
    assert sft_memory(TINY, sft(), 8, 80) == sft_memory(TINY, sft(), 1, 80)


def test_below_an_adapter_weights_are_in_16_or_in_4_bits() -> None:
    adapter = QWEN.adapter_parameters(Lora(rank=4))
    lora, qlora = (sft_memory(QWEN, sft(method), 1, 80) for method in ("lora", "qlora"))
    assert part_gib(lora, "weights") * GIB == pytest.approx(2 * QWEN.parameters)
    assert part_gib(lora, "optimizer states") * GIB == pytest.approx(8 * adapter)
    assert part_gib(qlora, "optimizer states") * GIB == pytest.approx(4 * adapter)
    # 2.77 B of them at 4.127 bits, and 0.31 B that look tokens up, and the norms, at 16.
    assert part_gib(qlora, "weights") * GIB == pytest.approx(1.4314e9 + 0.6232e9, rel=1e-3)


def test_the_sum_has_a_margin_and_a_gpu_less_room_than_its_name_says() -> None:
    found = sft_memory(QWEN, sft("lora"), 1, 80)
    assert sum(part.gib for part in found.parts) == pytest.approx(found.total_gib)
    assert part_gib(found, "margin") == pytest.approx(found.total_gib / 11)
    assert (found.room_gib, found.fits) == (78.0, True)
    tight = sft_memory(QWEN, sft("lora"), 1, found.total_gib + 1.999)
    assert not tight.fits
    assert {part.name for part in found.parts} <= set(cost.PARTS)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_all_layers_are_kept_of_a_small_model_and_one_of_a_large(method: Method) -> None:
    settings = sft(method, window=10)
    found = part_gib(sft_memory(TINY, settings, 1, 80), "activations") * GIB
    assert found == 10 * 2 * layer_bytes(TINY, settings)
    found = part_gib(sft_memory(LLAMA, settings, 1, 80), "activations") * GIB
    stream = {"full": 4, "lora": 2}[method] * 4096
    assert found == 10 * (32 * stream + layer_bytes(LLAMA, settings))


def test_the_loss_by_hand() -> None:
    frozen, trained = (
        part_gib(sft_memory(TINY, sft(method, window=10), 1, 80), "loss") * GIB
        for method in ("lora", "full")
    )
    assert frozen == 2 * 10 * 64 + 4 * 10 * 128
    assert trained == frozen + 4 * 64 * 128
    large = sft_memory(LLAMA, sft("lora", window=8192), 1, 80)
    assert part_gib(large, "loss") * GIB == 2 * 4096 * 32_768 + 4 * 8192 * 4096


def test_a_window_is_no_longer_than_the_model_sees() -> None:
    assert sft_memory(TINY, sft(window=1024), 1, 80) == sft_memory(TINY, sft(window=256), 1, 80)


def test_practice_takes_the_larger_of_writing_and_learning_and_leaves_the_judge_room() -> None:
    rl = RlSettings(problems=8, rollouts=8, batch=1, most_tokens=1000)
    found = rl_memory(LLAMA, sft("lora"), rl, 500, 80)
    assert key_value_bytes(LLAMA) == 2 * 2 * 32 * 8 * 128
    assert part_gib(found, "keys and values") * GIB == 64 * 1500 * 131_072
    assert part_gib(found, "activations") == 0
    assert part_gib(found, "judge") == cost.JUDGE_GIB
    learning = rl_memory(LLAMA, sft("lora"), rl.evolve(batch=64), 500, 80)
    assert part_gib(learning, "keys and values") == 0
    assert part_gib(learning, "activations") > part_gib(found, "keys and values")


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_layer_keeps_the_bytes_that_autograd_keeps(method: Method) -> None:
    """Two layers' saved tensors less one layer's; what is left out are statistics of a few bytes
    a token, the adapter's weights and what is of its rank."""
    tokens = 256
    kept = [_saved_bytes(layers, method, tokens) for layers in (1, 2)]
    per_token = (kept[1] - kept[0]) / tokens
    # Query and key statistics, and of an adapter seven inputs of its rank.
    most = 24 if method == "full" else 24 + 7 * 4 * 2
    assert 0 <= per_token - layer_bytes(TINY, sft(method)) <= most


def _saved_bytes(layers: int, method: Method, tokens: int) -> int:
    """Bytes of all that is kept for the backward pass of a body under autocast, without weights
    and their copies."""
    model, own = _body(layers, method)
    weights = [tuple(item.shape) for item in own if item.dim() == 2]
    shapes = {*weights, *((columns, rows) for rows, columns in weights)}
    seen: dict[int, int] = {}
    held: list[torch.Tensor] = []

    def pack(item: torch.Tensor) -> torch.Tensor:
        storage = item.untyped_storage()
        if tuple(item.shape) not in shapes:
            held.append(item)  # so that nobody else gets its place
            seen[storage.data_ptr()] = storage.nbytes()
        return item

    places = {item.untyped_storage().data_ptr() for item in own}
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda item: item),
        torch.autocast("cpu", torch.bfloat16),
    ):
        model(torch.randint(0, TINY.vocabulary, (1, tokens)))
    return sum(size for place, size in seen.items() if place not in places)


def _body(layers: int, method: Method) -> tuple[Any, list[torch.Tensor]]:
    sizes = sizes_of(TINY.evolve(layers=layers, tied=False))
    model = made("llama", "cpu", **sizes, attn_implementation="sdpa")
    if method == "full":
        return model.model, list(model.parameters())
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    tuned = peft.get_peft_model(model.to(torch.bfloat16), config)
    tuned.enable_input_require_grads()
    return tuned.get_base_model().model, list(tuned.parameters())
