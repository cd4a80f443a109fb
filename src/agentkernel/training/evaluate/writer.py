"""How does a model in this process answer many questions at once?

`LocalModel` asks one at a time, as the loop does. Here many are written at once, which a small
model on a large GPU is far faster at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agentkernel.agents.models.local_presets import LocalPreset, parse_local
from agentkernel.agents.models.local_text import Sample, prompt_ids, read_sample
from agentkernel.agents.models.local_weights import Weights, load_weights
from agentkernel.domain.exchange import Message, Sampling
from agentkernel.training.decoding import OnAnswer, TokenSampling, answer_all
from agentkernel.training.training import SamplingSettings


class Writer(Protocol):
    """Whoever answers many conversations, `samples` times each: draws, or, where `ranked`, from the
    best down."""

    @property
    def ranked(self) -> bool: ...

    def write(
        self, conversations: Sequence[Sequence[Message]], samples: int, wrote: OnAnswer
    ) -> list[list[Sample]]:
        """The answers to each conversation, in order."""
        ...


def sampling_of(settings: SamplingSettings) -> Sampling:
    """How the finished model is asked, as its folder says."""
    return Sampling(
        temperature=settings.temperature, top_p=settings.top_p, max_tokens=settings.most_tokens
    )


class LocalWriter:
    """The model that `local:...` names, or weights that are in memory already."""

    ranked = False

    def __init__(
        self,
        model: str | Weights,
        sampling: Sampling | None = None,
        chat_template: bool = True,
        rows: int | None = None,
        seed: int = 0,
    ) -> None:
        preset: LocalPreset | None = None
        if isinstance(model, str):
            preset = parse_local(model)
            self.weights = load_weights(preset)
            self._chat_template = preset.chat_template
        else:
            self.weights = model
            self._chat_template = chat_template
        chosen = sampling or (preset.sampling() if preset else None)
        self._sampling = chosen or Sampling(temperature=0.8, top_p=0.95, max_tokens=1500)
        self._rows, self._seed = rows, seed

    def write(
        self,
        conversations: Sequence[Sequence[Message]],
        samples: int,
        wrote: OnAnswer = lambda number, total: None,
    ) -> list[list[Sample]]:
        """The same seed gives the same texts for the same questions on the same machine. One whose
        question fills the window has an empty answer that is cut."""
        weights, sampling = self.weights, self._sampling
        prompts = [
            prompt_ids(weights.tokenizer, messages, self._chat_template)
            for messages in conversations
        ]
        if not weights.on_device:
            weights.model.to(weights.device)
        answers = answer_all(
            weights.model,
            [tokens for tokens in prompts for _ in range(samples)],
            TokenSampling(sampling.temperature, sampling.top_p, sampling.max_tokens),
            ends=weights.ends,
            window=weights.window,
            seed=self._seed,
            rows=self._rows,
            wrote=wrote,
        )
        found = [self._read(answer) for answer in answers]
        return [found[begin : begin + samples] for begin in range(0, len(found), samples)]

    def _read(self, answer: list[int]) -> Sample:
        """One that nothing ended is as long as it may be."""
        weights = self.weights
        if not answer:
            return Sample("", "length", 0)
        return read_sample(
            weights.tokenizer, answer, weights.ends, self._sampling.stop, len(answer)
        )


__all__ = ["LocalWriter", "Writer", "sampling_of"]
