"""How are many prompts answered by a model of any kind? By transformers, padded to the left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from agentkernel.training.decoding.drawing import TokenSampling
from agentkernel.training.decoding.slots import Prompt

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedModel


def generate(
    model: PreTrainedModel, prompts: Sequence[Prompt], drawing: TokenSampling, ends: frozenset[int]
) -> list[list[int]]:
    """An answer to each, as far as the one with the least room may go; drawn by torch's own
    generators."""
    longest = max(len(item.tokens) for item in prompts)
    device = next(model.parameters()).device
    pad = min(ends, default=0)
    lead = [longest - len(item.tokens) for item in prompts]
    tokens = [[pad] * gap + [*item.tokens] for gap, item in zip(lead, prompts, strict=True)]
    mask = [[0] * gap + [1] * (longest - gap) for gap in lead]
    rows = model.generate(  # type: ignore[operator]
        torch.tensor(tokens, device=device),
        attention_mask=torch.tensor(mask, device=device),
        generation_config=_generation(
            drawing, min(item.most for item in prompts), sorted(ends), pad
        ),
    )
    return [_cut(row, ends) for row in rows[:, longest:].tolist()]


def _generation(drawing: TokenSampling, most: int, ends: list[int], pad: int) -> GenerationConfig:
    from transformers import GenerationConfig

    drawn = drawing.temperature > 0
    return GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=most,
        do_sample=drawn,
        temperature=drawing.temperature if drawn else None,
        top_p=drawing.top_p if drawn else None,
        top_k=0 if drawn else None,
        eos_token_id=ends or None,
        pad_token_id=pad,
    )


def _cut(row: list[int], ends: frozenset[int]) -> list[int]:
    """Up to the token that ends it: the batch may have gone on for the others."""
    end = next((place for place, token in enumerate(row) if token in ends), len(row))
    return row[: end + 1]


@contextmanager
def generating(model: PreTrainedModel, seed: int) -> Iterator[None]:
    """The model as it answers, drawing from `seed`; a training goes on as if nobody had asked.
    What the folder of the weights says about sampling does not count meanwhile."""
    from transformers import GenerationConfig

    device = next(model.parameters()).device
    training, beside = model.training, model.generation_config
    model.train(False)
    model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            yield
    finally:
        model.generation_config = beside
        model.train(training)


__all__ = ["generate", "generating"]
