"""Which tokens does a model in memory write to each of many prompts?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, cast

import torch

from agentkernel.training.decoding.decoder import Decoder
from agentkernel.training.decoding.drawing import TokenSampling
from agentkernel.training.decoding.generated import generate, generating
from agentkernel.training.decoding.llama import Llama, read_llama
from agentkernel.training.decoding.slots import Prompt, fitting_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ROWS = 512
"""Answers that are written at once on a GPU: a step of a small model takes as long for one."""
ROWS_CPU = 64
OnAnswer = Callable[[int, int], None]
"""Hears how many answers are written, and of how many."""


def answer_all(
    model: object,
    prompts: Sequence[Sequence[int]],
    drawing: TokenSampling,
    *,
    ends: frozenset[int],
    window: int,
    seed: int,
    rows: int | None = None,
    wrote: OnAnswer = lambda number, total: None,
) -> list[list[int]]:
    """An answer to each prompt, in order: up to and with one of `ends`, or `drawing.most_tokens`
    tokens, or as many as `window` holds; none where the prompt fills it.

    `model` is left as it was. It computes in autocast's type where that is on. A plain Llama is
    decoded here, whose answers depend on the seed and on their place among the prompts alone (but
    for rounding, which the number of `rows` decides); transformers writes the others.
    Raises OutOfMemoryError where not even one answer has room.
    """
    asked = [
        Prompt(number, tokens, min(drawing.most_tokens, window - len(tokens)))
        for number, tokens in enumerate(prompts)
        if len(tokens) < window
    ]
    found: list[list[int]] = [[] for _ in prompts]
    done: set[int] = set()

    def ended(row: int, answer: list[int]) -> None:
        found[row] = answer
        done.add(row)
        wrote(len(done), len(asked))

    device = next(cast("PreTrainedModel", model).parameters()).device
    at_once = rows or (ROWS if device.type == "cuda" else ROWS_CPU)
    with torch.no_grad():
        llama = read_llama(model, _autocast_dtype(device))
        while left := [item for item in asked if item.row not in done]:
            try:
                if llama is not None:
                    _decode(llama, left, drawing, ends, seed, at_once, ended)
                else:
                    _generate(model, left, drawing, ends, seed, at_once, ended)
            except torch.OutOfMemoryError:
                if at_once == 1:
                    raise
                at_once = max(at_once // 2, 1)
            else:
                continue
            # Out here, where nothing of what was half done is held by the error any more.
            torch.cuda.empty_cache()
    if device.type == "cuda":
        # The judges of what was written may work on the same GPU.
        torch.cuda.empty_cache()
    return found


def _decode(
    llama: Llama,
    prompts: Sequence[Prompt],
    drawing: TokenSampling,
    ends: frozenset[int],
    seed: int,
    rows: int,
    ended: Callable[[int, list[int]], None],
) -> None:
    count = fitting_rows(llama, prompts, rows)
    on_gpu = llama.device.type == "cuda"
    # The types are chosen here; autocast would copy the weights at every step.
    with (
        torch.autocast(llama.device.type, enabled=False),
        torch.cuda.device(llama.device) if on_gpu else nullcontext(),
    ):
        Decoder(llama, prompts, drawing, count=count, ends=ends, seed=seed).run(ended)


def _generate(
    model: object,
    prompts: Sequence[Prompt],
    drawing: TokenSampling,
    ends: frozenset[int],
    seed: int,
    rows: int,
    ended: Callable[[int, list[int]], None],
) -> None:
    """Of about one length at a time, the longest first: what does not fit shows at once."""
    known = cast("PreTrainedModel", model)
    order = sorted(prompts, key=lambda item: (-len(item.tokens), item.row))
    with generating(known, seed):
        for begin in range(0, len(order), rows):
            batch = order[begin : begin + rows]
            for item, answer in zip(batch, generate(known, batch, drawing, ends), strict=True):
                ended(item.row, answer)


def _autocast_dtype(device: torch.device) -> torch.dtype | None:
    if not torch.is_autocast_enabled(device.type):
        return None
    return torch.get_autocast_dtype(device.type)


__all__ = ["ROWS", "ROWS_CPU", "OnAnswer", "answer_all"]
