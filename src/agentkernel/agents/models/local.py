"""How does a model in this process answer, beside a judge that needs the same GPU?"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch

from agentkernel.agents.models.local_presets import LocalPreset, parse_local
from agentkernel.agents.models.local_stream import FirstSample
from agentkernel.agents.models.local_text import Sample, StopAt, prompt_ids, read_sample
from agentkernel.agents.models.local_weights import Weights, load_weights
from agentkernel.agents.models.protocol import LEAST_S, LeftS, OnText, ignore_text, no_deadline
from agentkernel.domain.errors import ModelUnavailable, PromptTooLong, one_line
from agentkernel.domain.exchange import ModelRequest, Reply, Sampling, Usage
from agentkernel.runtime import gate

if TYPE_CHECKING:
    from transformers import GenerationConfig, StoppingCriteriaList

GB = 1e9


class LocalModel:
    """A transformers model, with a PEFT adapter where one is named.

    Its weights are read at the first question. On a GPU it writes only while nobody times there.
    """

    def __init__(
        self, name: str, preset: LocalPreset | None = None, left_s: LeftS = no_deadline
    ) -> None:
        self.name = name
        self.left_s = left_s
        self.preset = parse_local(name) if preset is None else preset
        self._weights: Weights | None = None
        self._one_at_a_time = threading.Lock()

    @property
    def memory_bytes(self) -> int:
        """What the weights take on the device that the model works on; 0 while they are not
        there."""
        weights = self._weights
        return weights.size_bytes if weights is not None and weights.on_device else 0

    def ask(self, question: ModelRequest, on_text: OnText = ignore_text) -> Reply:
        """The answer; the same seed gives the same texts on the same machine.

        Raises ModelUnavailable where the model cannot be loaded, does not fit the GPU, or its
        window is too short for the prompt.
        """
        begin = time.monotonic()
        with self._one_at_a_time:
            if self._weights is None:
                self._weights = load_weights(self.preset)
            weights = self._weights
            prompt = prompt_ids(weights.tokenizer, question.messages, self.preset.chat_template)
            most = self._room(weights, len(prompt), question.sampling.max_tokens)
            on_gpu = weights.device.type == "cuda"
            with gate.shared() if on_gpu else nullcontext():
                entered = time.monotonic()
                try:
                    samples = self._write(weights, prompt, most, question.sampling, on_text)
                finally:
                    if on_gpu:
                        self._make_room(weights)
                gpu_seconds = time.monotonic() - entered if on_gpu else 0.0
        copies = question.sampling.samples // len(samples)
        return Reply(
            texts=tuple(sample.text for sample in samples) * copies,
            finish=tuple(sample.finish for sample in samples) * copies,
            usage=Usage(prompt=len(prompt), completion=sum(sample.tokens for sample in samples)),
            seconds=time.monotonic() - begin,
            gpu_seconds=gpu_seconds,
        )

    def release(self) -> None:
        """Give all of the model's memory back; the next question reads the weights again."""
        with self._one_at_a_time:
            self._forget()

    def _room(self, weights: Weights, prompt: int, asked: int) -> int:
        """How many tokens the answer may have."""
        if prompt >= weights.window:
            raise PromptTooLong(
                f"The prompt for {self.name!r} has {prompt} tokens, its window {weights.window}. "
                "Expected a prompt that leaves room for an answer. Next: a model with a longer "
                "window, or fewer notes (-c knowledge.limit=0)."
            )
        return min(asked, weights.window - prompt)

    def _write(
        self,
        weights: Weights,
        prompt: list[int],
        most: int,
        sampling: Sampling,
        on_text: OnText,
    ) -> list[Sample]:
        """The samples, all of them in one batch; without temperature one, as all were the same."""
        streamer = FirstSample(weights.tokenizer, weights.ends, sampling.stop, on_text)
        try:
            if not weights.on_device:
                weights.model.to(weights.device)
            tokens = torch.tensor([prompt], device=weights.device)
            with _own_randomness(weights.device, sampling.seed), torch.inference_mode():
                rows = weights.model.generate(
                    tokens,
                    attention_mask=torch.ones_like(tokens),
                    generation_config=_generation(weights, self._in_time(sampling), most),
                    stopping_criteria=_stopping(weights, sampling.stop, len(prompt)),
                    streamer=streamer,
                )
        except torch.OutOfMemoryError as error:
            raise self._too_large(weights, sampling.samples) from error
        except (RuntimeError, ValueError, OverflowError) as error:
            raise ModelUnavailable(
                f"Model {self.name!r} cannot write: {type(error).__name__}: {one_line(error)}. "
                "Expected weights, a temperature and a seed that it can draw from. Next: another "
                "temperature, or 'quantization: none' in a preset."
            ) from error
        return [
            read_sample(weights.tokenizer, row, weights.ends, sampling.stop, most)
            for row in rows[:, len(prompt) :].tolist()
        ]

    def _in_time(self, sampling: Sampling) -> Sampling:
        """No longer than the run has: what is written by then is the answer."""
        left_s = max(self.left_s(), LEAST_S)
        return sampling.model_copy(update={"timeout_s": min(sampling.timeout_s, left_s)})

    def _make_room(self, weights: Weights) -> None:
        """Leave the GPU to the judge as it was, weights apart, and these too where they would
        leave it too little."""
        torch.cuda.synchronize(weights.device)
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(weights.device)
        if must_free_gpu(self.preset, free):
            self._free_gpu(weights)

    def _free_gpu(self, weights: Weights) -> None:
        """Take the weights off the GPU; those in 4 bits live there or not at all."""
        if self.preset.quantization == "none":
            weights.model.to("cpu")
            torch.cuda.empty_cache()
        else:
            self._forget()

    def _forget(self) -> None:
        self._weights = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _too_large(self, weights: Weights, samples: int) -> ModelUnavailable:
        self._free_gpu(weights)
        free, total = torch.cuda.mem_get_info(weights.device)
        return ModelUnavailable(
            f"Model {self.name!r} does not fit the GPU: {weights.size_bytes / GB:.1f} GB of "
            f"weights and what {samples} samples at once take, with {free / GB:.1f} of "
            f"{total / GB:.1f} GB free. Next: fewer samples, 'quantization: 4bit' in a preset, or "
            "a smaller model."
        )


def must_free_gpu(preset: LocalPreset, free_bytes: int) -> bool:
    """True where `free_bytes` of the GPU's memory, beside the weights, are too few for judging."""
    return preset.release_between and free_bytes < preset.judge_gb * GB


def _generation(weights: Weights, sampling: Sampling, most: int) -> GenerationConfig:
    from transformers import GenerationConfig

    ends = sorted(weights.ends)
    pad = weights.tokenizer.pad_token_id
    drawn = sampling.temperature > 0
    return GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=most,
        max_time=sampling.timeout_s,
        do_sample=drawn,
        temperature=sampling.temperature if drawn else None,
        top_p=sampling.top_p if drawn else None,
        top_k=0 if drawn else None,
        num_return_sequences=sampling.samples if drawn else 1,
        eos_token_id=ends or None,
        pad_token_id=pad if pad is not None else (ends[0] if ends else 0),
    )


def _stopping(weights: Weights, stop: Sequence[str], prompt: int) -> StoppingCriteriaList:
    from transformers import StoppingCriteriaList

    return StoppingCriteriaList([StopAt(weights.tokenizer, stop, prompt)] if stop else [])


@contextmanager
def _own_randomness(device: torch.device, seed: int | None) -> Iterator[None]:
    """Seeds for the model alone: the rest of the process draws as if it had not been asked."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        if seed is None:
            torch.seed()
        else:
            torch.manual_seed(seed)
        yield


__all__ = ["LocalModel", "must_free_gpu"]
