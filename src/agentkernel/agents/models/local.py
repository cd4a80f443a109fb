"""Model in this process, from prompt tokens to text, on a GPU shared with the judge.

The weights leave the GPU where judging needs their memory. A conversation becomes tokens by the
tokenizer's chat template; text is decoded, cut at stop strings and streamed as it is generated.
"""

from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

import torch
from jinja2 import TemplateError
from transformers import BatchEncoding, StoppingCriteria
from transformers.generation.streamers import BaseStreamer

from agentkernel.agents.models.local_presets import LocalPreset, parse_local
from agentkernel.agents.models.local_weights import Weights, load_weights
from agentkernel.agents.models.protocol import LEAST_S, LeftS, OnText, ignore, no_deadline
from agentkernel.domain.errors import ModelUnavailable, PromptTooLong, one_line
from agentkernel.domain.exchange import Finish, Message, ModelRequest, Reply, Sampling, Usage
from agentkernel.runtime import gpu_lock

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedTokenizerBase, StoppingCriteriaList


class Sample(NamedTuple):
    """One text, why it ends, and how many tokens were generated for it."""

    text: str
    finish: Finish
    tokens: int


def prompt_ids(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], chat_template: bool
) -> list[int]:
    """The conversation in the tokenizer's template, or one paragraph after the other.

    Raises ModelUnavailable where the template has no place for a role.
    """
    turns = [(turn.role, escape_special_tokens(tokenizer, turn.text)) for turn in messages]
    if chat_template and tokenizer.chat_template is not None:
        try:
            written = tokenizer.apply_chat_template(
                [{"role": role, "content": text} for role, text in turns],
                add_generation_prompt=True,
                tokenize=False,
            )
        except TemplateError as error:
            raise ModelUnavailable(
                f"The model's chat template refuses this conversation: {one_line(error)}. "
                "Next: 'chat_template: false' in a preset, see docs/models.md."
            ) from error
        # The template has put the marks of begin and end where they belong.
        encoded = tokenizer(str(written), add_special_tokens=False)
    else:
        encoded = tokenizer("\n\n".join(text for _, text in turns))
    assert isinstance(encoded, BatchEncoding)
    return [int(token) for token in encoded["input_ids"]]


def escape_special_tokens(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    """`text` with a blank inside whatever the tokenizer would read as a mark of its own, so that a
    comment in a user's module cannot end its turn and begin another's."""
    marks = {
        token.content
        for token in tokenizer.added_tokens_decoder.values()
        if len(token.content) > 1 and (token.special or token.content.startswith("<|"))
    }
    if not marks:
        return text
    pattern = "|".join(re.escape(mark) for mark in sorted(marks, key=len, reverse=True))
    return re.sub(pattern, lambda found: f"{found[0][0]} {found[0][1:]}", text)


def decode(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int]) -> str:
    """The text of `tokens` as it stands, without marks."""
    return str(
        tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    )


def first_stop(text: str, stop: Sequence[str]) -> int | None:
    """Where the first stop string begins in `text`."""
    return min((text.index(word) for word in stop if word in text), default=None)


def read_sample(
    tokenizer: PreTrainedTokenizerBase,
    row: Sequence[int],
    ends: frozenset[int],
    stop: Sequence[str],
    most: int,
) -> Sample:
    """One row of generated tokens, whose batch may have gone on after its end."""
    end = next((place for place, token in enumerate(row) if token in ends), None)
    text = decode(tokenizer, row[:end])
    cut = first_stop(text, stop)
    if cut is not None:
        return Sample(text[:cut], "stop", _tokens_to(tokenizer, row[:end], stop))
    if end is not None:
        return Sample(text, "stop", end + 1)
    return Sample(text, "length" if len(row) >= most else "cut", len(row))


def _tokens_to(tokenizer: PreTrainedTokenizerBase, row: Sequence[int], stop: Sequence[str]) -> int:
    """How many tokens it took until a stop string was there: a bisection, as text only grows."""
    low, high = 1, len(row)
    while low < high:
        middle = (low + high) // 2
        if first_stop(decode(tokenizer, row[:middle]), stop) is None:
            low = middle + 1
        else:
            high = middle
    return low


class StopAt(StoppingCriteria):
    """Ends a row once a stop string stands in what was generated for it."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str], prompt: int
    ) -> None:
        self._tokenizer, self._stop, self._prompt = tokenizer, stop, prompt
        # A token holds a byte at least, so no stop string reaches further back.
        self._reach = max(len(word.encode()) for word in stop) + 1

    def __call__(
        self,
        input_ids: torch.LongTensor,
        scores: tuple[torch.Tensor] | None,
        **kwargs: object,
    ) -> torch.BoolTensor:
        begin = max(self._prompt, input_ids.shape[1] - self._reach)
        there = [
            first_stop(decode(self._tokenizer, row), self._stop) is not None
            for row in input_ids[:, begin:].tolist()
        ]
        return torch.BoolTensor(there).to(input_ids.device)  # type: ignore[return-value]


BROKEN = "\ufffd"
"""What a decoder writes for bytes that are not a whole character (yet)."""


class FirstSample(BaseStreamer):
    """Tells a listener the first row's text as it comes, up to a stop string and without it."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        ends: frozenset[int],
        stop: Sequence[str],
        on_text: OnText,
    ) -> None:
        self._tokenizer, self._ends, self._stop = tokenizer, ends, stop
        self._on_text = on_text
        self._tokens: list[int] = []
        self._before, self._read = 0, 0
        self._held = ""
        self._prompt_is_next, self._done = True, False

    def put(self, value: torch.Tensor) -> None:
        """The prompt first, then one token of each row a call."""
        if self._prompt_is_next:
            self._prompt_is_next = False
            return
        if self._done:
            return
        token = int(value.reshape(-1)[0])
        if token in self._ends:
            self.end()
            return
        self._tokens.append(token)
        self._hear(self._decoded())

    def end(self) -> None:
        """What was held back is text after all, as no more is coming."""
        if self._done:
            return
        self._hear(self._decoded(last=True))
        if not self._done:
            self._say(len(self._held))
        self._done = True

    def _decoded(self, last: bool = False) -> str:
        """The text of the tokens that are new since the last call that gave any. They are decoded
        with those before them: a tokenizer may write a word otherwise at the beginning."""
        known = decode(self._tokenizer, self._tokens[self._before : self._read])
        text = decode(self._tokenizer, self._tokens[self._before :])
        if not last and (text.endswith(BROKEN) or len(text) <= len(known)):
            return ""
        self._before, self._read = self._read, len(self._tokens)
        return text[len(known) :]

    def _hear(self, text: str) -> None:
        self._held += text
        cut = first_stop(self._held, self._stop)
        if cut is not None:
            self._say(cut)
            self._done = True
            return
        begun = (
            size
            for word in self._stop
            for size in range(1, len(word))
            if self._held.endswith(word[:size])
        )
        self._say(len(self._held) - max(begun, default=0))

    def _say(self, size: int) -> None:
        if size:
            self._on_text(self._held[:size])
            self._held = self._held[size:]


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

    def ask(self, question: ModelRequest, on_text: OnText = ignore) -> Reply:
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
            with gpu_lock.shared() if on_gpu else nullcontext():
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
        return sampling.evolve(timeout_s=min(sampling.timeout_s, left_s))

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
