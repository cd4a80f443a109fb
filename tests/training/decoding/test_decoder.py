"""Are answers what the model's own forward says, whoever is answered beside them?"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM, PreTrainedModel

from agentkernel.training.decoding import TokenSampling, answer_all
from agentkernel.training.decoding.decoder import (
    CPU,
    GPU,
    DecodePacing,
    Decoder,
    Prompt,
    generate,
    generating,
)
from agentkernel.training.decoding.llama import (
    TorchOperations,
    as_plain_llama,
    read_llama,
    sample_tokens,
    uniform_streams,
)
from tests.training.decoding.decoding_checks import make_llama

ROOT = Path(__file__).parents[3]
ENDS = frozenset([7])
GREEDY = TokenSampling(0.0, 1.0, 40, ENDS)
WINDOW = 64


def prompts(lengths: Sequence[int] = (3, 17, 9, 1, 30, 5, 5, 63)) -> list[list[int]]:
    own = torch.Generator().manual_seed(5)
    return [torch.randint(0, 50, (length,), generator=own).tolist() for length in lengths]


def asked(found: Sequence[Sequence[int]], most: int) -> list[Prompt]:
    return [
        Prompt(row, tokens, min(most, WINDOW - len(tokens))) for row, tokens in enumerate(found)
    ]


def alone(model: LlamaForCausalLM, found: Sequence[Sequence[int]]) -> list[list[int]]:
    """What transformers writes, one by one."""
    with generating(model, 0), torch.no_grad():
        return [generate(model, [item], GREEDY)[0] for item in asked(found, 40)]


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_key_value_heads": 4, "tie_word_embeddings": True},
        {"num_key_value_heads": 1, "head_dim": 12, "num_hidden_layers": 3},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}, "rms_norm_eps": 1e-3},
    ],
)
def test_the_likeliest_tokens_are_those_of_transformers(changes: dict[str, object]) -> None:
    model = make_llama("cpu", torch.float32, **changes)
    found = prompts()
    assert as_plain_llama(model) is model
    wanted = alone(model, found)
    for rows in (1, 3, 64):
        answers = answer_all(model, found, GREEDY, window=WINDOW, rows=rows)
        assert answers == wanted
    assert {len(item) for item in wanted} > {1, 40}


@pytest.mark.quick(1)
@pytest.mark.parametrize("pace", [CPU, GPU, DecodePacing(3, 0.5, 40, 2)])
def test_nothing_depends_on_who_is_answered_beside(pace: DecodePacing) -> None:
    llama = read_llama(make_llama())
    assert llama is not None
    found: list[dict[int, list[int]]] = []
    for count, seed in ((1, 3), (4, 3), (8, 3), (4, 2**70 - 3)):
        answers: dict[int, list[int]] = {}
        several = asked(prompts(), 40)
        several = several if count > 1 else several[::-1]
        drawing = TokenSampling(1.0, 0.9, 40, ENDS, seed)
        Decoder(llama, several, drawing, count=count, pace=pace).run(answers.__setitem__)
        found.append(answers)
    assert found[0] == found[1] == found[2] != found[3]
    # The same prompt twice, drawn twice.
    assert found[0][5] != found[0][6]


class Recording(TorchOperations):
    """Notes from what each token was drawn."""

    def __init__(self) -> None:
        self.logits: list[torch.Tensor] = []

    def draw(
        self, logits: torch.Tensor, uniforms: torch.Tensor, drawing: TokenSampling
    ) -> torch.Tensor:
        self.logits.append(logits)
        return super().draw(logits, uniforms, drawing)


def test_rows_get_fewer_by_quarters_so_that_few_graphs_do() -> None:
    llama = read_llama(make_llama())
    assert llama is not None
    noted = Recording()
    several = [Prompt(row, [1, row], 2 + 5 * row) for row in range(8)]
    Decoder(
        llama,
        several,
        TokenSampling(1.0, 1.0, 40),
        count=8,
        pace=DecodePacing(4, 0.0, 4096, 2),
        operations=noted,
    ).run(lambda row, answer: None)
    assert [len(item) for item in noted.logits] == [8] * 29 + [2] * 8


@pytest.mark.parametrize(("dtype", "off"), [(torch.float32, 2e-5), (torch.bfloat16, 0.05)])
def test_tokens_are_as_likely_as_the_model_says(dtype: torch.dtype, off: float) -> None:
    model = make_llama(initializer_range=0.2)
    llama = read_llama(model, dtype)
    assert llama is not None
    noted, answers = Recording(), dict[int, list[int]]()
    (prompt,) = prompts([11])
    Decoder(
        llama,
        asked([prompt], 40),
        TokenSampling(1.0, 1.0, 40),
        count=1,
        operations=noted,
    ).run(answers.__setitem__)
    with torch.no_grad(), torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        whole = model(torch.tensor([prompt + answers[0]])).logits[0, 10:-1]
    found = torch.cat(noted.logits)
    assert found.dtype == dtype
    assert len(found) == 40
    error = (torch.log_softmax(found.float(), -1) - torch.log_softmax(whole.float(), -1)).abs()
    assert error.max() < off


def test_a_model_in_autocast_is_decoded_in_its_type() -> None:
    model = make_llama()
    with torch.autocast("cpu", torch.bfloat16):
        found = answer_all(model, prompts(), GREEDY, window=WINDOW)
    plain = answer_all(model, prompts(), GREEDY, window=WINDOW)
    halves = answer_all(make_llama(dtype=torch.bfloat16), prompts(), GREEDY, window=WINDOW)
    assert found != plain
    assert all(found)
    assert all(halves)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 0.8), (2.0, 0.95)])
def test_tokens_are_drawn_as_often_as_they_are_likely(temperature: float, top_p: float) -> None:
    torch.manual_seed(0)
    logits, number = torch.randn(8) * 2, 20_000
    likely = torch.softmax(logits.double() / temperature, -1)
    falling, order = likely.sort(descending=True)
    kept = int((falling.cumsum(0) < top_p).sum()) + 1
    wanted = torch.zeros(8, dtype=torch.float64)
    wanted[order[:kept]] = falling[:kept] / falling[:kept].sum()
    uniforms = uniform_streams(3, range(200), number // 200).flatten()
    drawn = sample_tokens(logits.expand(number, -1), uniforms, TokenSampling(temperature, top_p, 1))
    counts = drawn.bincount(minlength=8)
    assert counts[wanted == 0].sum() == 0
    expected = (wanted * number)[wanted > 0]
    found = ((counts[wanted > 0] - expected) ** 2 / expected).sum()
    # The 99.9th percentile of chi-square with 7 degrees of freedom.
    assert found < 24.3
    assert kept < 8 or top_p == 1.0


def test_streams_are_a_rows_own() -> None:
    several = uniform_streams(-3, [4, 0, 2], 9)
    assert torch.equal(several[2], uniform_streams(-3, [2], 5000)[0, :9])
    assert not torch.equal(several, uniform_streams(3, [4, 0, 2], 9))
    assert several.min() >= 0 < 1 > several.max()


def test_the_window_bounds_an_answer_and_a_full_one_has_none() -> None:
    found = prompts((WINDOW + 1, WINDOW, WINDOW - 1, 60))
    heard: list[tuple[int, int]] = []
    answers = answer_all(
        make_llama(),
        found,
        replace(GREEDY, ends=frozenset()),
        window=WINDOW,
        wrote=lambda number, total: heard.append((number, total)),
    )
    assert [len(item) for item in answers] == [0, 0, 1, 4]
    assert heard == [(1, 2), (2, 2)]
    assert answer_all(make_llama(), [], GREEDY, window=WINDOW) == []


def test_too_little_memory_halves_the_rows_and_keeps_what_is_done() -> None:
    model = make_llama()
    wanted = answer_all(model, prompts(), GREEDY, window=WINDOW)
    heard: list[int] = []

    def full(number: int, total: int) -> None:
        heard.append(number)
        if number in (1, 4):
            raise torch.OutOfMemoryError("CUDA out of memory")

    found = answer_all(model, prompts(), GREEDY, window=WINDOW, wrote=full)
    assert found == wanted
    assert heard == list(range(1, 9))


def biased() -> PreTrainedModel:
    return make_llama(attention_bias=True)


def scaled() -> PreTrainedModel:
    return make_llama(rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0})


def watched() -> PreTrainedModel:
    model = make_llama()
    model.model.layers[1].mlp.register_forward_hook(lambda *values: None)
    return model


def other() -> PreTrainedModel:
    return make_llama(hidden_act="gelu")


def mixed() -> PreTrainedModel:
    model = make_llama()
    model.model.norm.to(torch.bfloat16)
    return model


@pytest.mark.parametrize("make", [biased, scaled, watched, other, mixed])
def test_any_other_model_is_left_to_transformers(make: object) -> None:
    assert callable(make)
    assert read_llama(make()) is None


def test_a_model_with_an_adapter_is_left_to_transformers() -> None:
    from peft import LoraConfig, get_peft_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        wrapped = get_peft_model(make_llama(), LoraConfig(r=2, target_modules=["q_proj"]))
    assert read_llama(wrapped) is None
    assert read_llama(wrapped.get_base_model()) is None
    found = answer_all(wrapped, prompts(), GREEDY, window=WINDOW, rows=4)
    # The adapter's second matrix is 0 as yet.
    wanted = alone(make_llama(), prompts())
    assert all(one == two[: len(one)] for one, two in zip(found, wanted, strict=True))
    assert all(found)


class Broken(Exception):
    pass


@pytest.mark.parametrize("make", [make_llama, biased])
def test_a_model_is_left_as_it_was_whatever_happens(make: object) -> None:
    assert callable(make)
    model: PreTrainedModel = make()
    model.train()
    beside = model.generation_config
    beside.top_k = 3
    state = torch.get_rng_state()

    def breaks(number: int, total: int) -> None:
        raise Broken

    drawing = TokenSampling(1.0, 0.9, 4, ENDS)
    with pytest.raises(Broken):
        answer_all(model, prompts(), drawing, window=WINDOW, wrote=breaks)
    assert model.training
    assert model.generation_config is beside
    assert torch.equal(torch.get_rng_state(), state)
    first = answer_all(model, prompts(), drawing, window=WINDOW)
    assert first == answer_all(model, prompts(), drawing, window=WINDOW)
    assert torch.equal(torch.get_rng_state(), state)
    # What it learns next is no inference tensor.
    model(torch.tensor([[1, 2]])).logits.sum().backward()


@pytest.mark.slow
def test_the_kernels_in_the_interpreter() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.decoding.interpreted_decoding"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
