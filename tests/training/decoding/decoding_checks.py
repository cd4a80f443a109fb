"""What two ways of decoding are asked, so that their answers can be compared."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agentkernel.training.decoding.llama import (
    Heads,
    KeyValueCache,
    RotaryTables,
    TokenSampling,
    TorchOperations,
    sample_tokens,
)

DTYPES = (torch.float32, torch.bfloat16)
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1e-2}


def make_llama(
    device: str = "cpu", dtype: torch.dtype = torch.float32, **changes: object
) -> LlamaForCausalLM:
    """The same for the same shape, with weights so large that all that it read decides what it
    writes; fit to learn."""
    shape: dict[str, object] = {
        "vocab_size": 50,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "initializer_range": 0.5,
    }
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig.from_dict({**shape, **changes}))
    torch.nn.Module.to(model, device, dtype)
    model.train(False)
    return model


def parts(dtype: torch.dtype, *shapes: Sequence[int], device: str = "cpu") -> list[torch.Tensor]:
    return [torch.randn(*shape).to(device, dtype) for shape in shapes]


def close(found: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> None:
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    error = (found.double() - wanted.double()).norm() / wanted.double().norm()
    assert error <= tolerance, float(error)


def attended(
    operations: TorchOperations,
    dtype: torch.dtype,
    heads: int,
    key_heads: int,
    size: int,
    lengths: Sequence[int],
    device: str = "cpu",
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What rows of the last slots see, in backward order, and the keys and values kept then; the
    same for the same shapes."""
    torch.manual_seed(1)
    slots, room = len(lengths) + 2, -(-max(lengths) // 16) * 16 + 16
    whole, keys, values = parts(
        dtype,
        (len(lengths), (heads + 2 * key_heads) * size),
        (slots, key_heads, room, size),
        (slots, key_heads, room, size),
        device=device,
    )
    widths = [heads * size, key_heads * size, key_heads * size]
    angles = torch.rand(room, size // 2, device=device)
    where = torch.arange(slots - 1, 1, -1, device=device)
    kept_lengths = torch.zeros(slots, dtype=torch.int32, device=device)
    kept_lengths[where] = torch.tensor(lengths, dtype=torch.int32, device=device)
    found = operations.attend(
        Heads(*torch.split(whole, widths, -1)),
        KeyValueCache(keys, values),
        RotaryTables(angles.cos(), angles.sin()),
        where,
        kept_lengths,
    )
    return found, keys, values


def draws_alike(
    operations: TorchOperations, width: int, drawing: TokenSampling, rows: int, device: str = "cpu"
) -> None:
    """The same tokens as drawing.draw, wherever no rounding can decide between two."""
    torch.manual_seed(width)
    logits = torch.randn(rows, width, device=device) * 2
    uniforms = torch.rand(rows, device=device)
    found = operations.draw(logits, uniforms, drawing)
    near = [
        sample_tokens(logits, (uniforms + shift).clamp(0, 1 - 2**-24), drawing)
        for shift in (-2e-6, 2e-6)
    ]
    sure = near[0] == near[1]
    assert sure.float().mean() > 0.8
    assert torch.equal(found[sure], near[0][sure])
