"""What does a session take a text for, and what does a model's reading of it count?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from agentkernel.agents.models.protocol import OnText, ignore
from agentkernel.chat.language import EXAMPLES, understand
from agentkernel.chat.requests import (
    AskDocs,
    CandidateName,
    Compare,
    Diff,
    Edit,
    ExplainLine,
    Intent,
    IntentContext,
    LessMemory,
    MemoryLimit,
    OnCandidate,
    Plain,
    PlainName,
    Run,
    SetBudget,
    SetDtype,
    SetPolicy,
    SetPrecision,
    SetShapes,
    SetTarget,
    Size,
    StopAt,
    SwitchBranch,
    TryIdea,
    Understood,
    Undo,
    WriteTo,
)
from agentkernel.chat.user_input import (
    Pasted,
    Sentence,
    Unreadable,
    classify_input,
    prompt,
    read_with,
    reading_model,
    sentence,
)
from agentkernel.domain.errors import ModelUnavailable
from agentkernel.domain.exchange import ModelRequest, Sampling
from agentkernel.domain.exchange import Reply as Answer
from agentkernel.storage.configuration import load_settings

GOLDEN = Path(__file__).parents[1] / "golden" / "prompts" / "intent.md"
CONTEXT = IntentContext(
    targets=("h200", "local"), candidates=(1, 2, 3), current=3, precision="strict"
)
EVERY: tuple[Intent, ...] = (
    *(Plain(name=name) for name in get_args(PlainName)),
    *(OnCandidate(name=name) for name in get_args(CandidateName)),
    *(OnCandidate(name=name, candidate=2) for name in get_args(CandidateName)),
    Run(),
    Run(rounds=1),
    Run(seconds=90),
    LessMemory(),
    LessMemory(fraction=0.75),
    MemoryLimit(max_bytes=4 * 2**30),
    MemoryLimit(max_bytes=1000),
    *(SetPrecision(precision=name) for name in ("strict", "tf32", "bf16")),
    SetTarget(),
    SetTarget(target="h200"),
    SetTarget(target="local"),
    SetShapes(),
    SetShapes(shapes=((64, 4096),)),
    SetShapes(sizes=(Size(name="sequence_length", value=64),)),
    SetDtype(dtype="float16"),
    ExplainLine(),
    ExplainLine(line=4, last_line=9, candidate=2),
    Diff(candidate=3, against=1),
    Diff(against="original"),
    Compare(first="current", second="parent"),
    *(TryIdea(idea=idea) for idea in (1, 7, "next", "last")),
    Undo(steps=3),
    SwitchBranch(),
    SwitchBranch(branch=2),
    StopAt(speedup=2),
    StopAt(runtime_us=50),
    SetBudget(seconds=600),
    SetBudget(rounds=4),
    SetBudget(usd=2),
    *(SetPolicy(policy=name) for name in ("triton", "mixed", "any")),
    WriteTo(name="save", path="fast.py"),
    WriteTo(name="export"),
    AskDocs(query="split-K"),
    Edit(candidate=2),
    Edit(line=3),
)


class Scripted:
    """Says what it is told to say."""

    name = "scripted"

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.asked: list[ModelRequest] = []

    def ask(self, question: ModelRequest, on_text: OnText = ignore) -> Answer:
        self.asked.append(question)
        if not self.texts:
            raise ModelUnavailable("nobody is there")
        return Answer(texts=(self.texts.pop(0),), finish=("stop",))


def read(*texts: str, told: list[str] | None = None) -> tuple[Intent, ...]:
    lines = [] if told is None else told
    sampling = Sampling(temperature=0, max_tokens=500)
    return read_with(Scripted(*texts), sampling, "make it zippy", CONTEXT, EXAMPLES, lines.append)


@pytest.mark.parametrize("intent", EVERY, ids=lambda item: sentence(item))
def test_what_is_offered_to_be_typed_is_understood(intent: Intent) -> None:
    assert understand(sentence(intent), CONTEXT) == Understood(intents=(intent,))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("  run again\x07 ", Sentence("run again")),
        ("```python\nx = 1\n```", Pasted("x = 1\n")),
        ("~~~\nx = 1\n~~~ \n", Pasted("x = 1\n")),
        ("import torch\r\nx = 1", Pasted("import torch\nx = 1\n")),
        ("# mine\nclass ModelNew:\n    pass", Pasted("# mine\nclass ModelNew:\n    pass\n")),
    ],
)
def test_what_was_typed(text: str, found: object) -> None:
    assert classify_input(text) == found


def test_what_cannot_be_read_says_how_long_it_is() -> None:
    found = classify_input("word " * 1000)
    assert isinstance(found, Unreadable)
    assert "5,000 characters" in found.why
    assert len(found.kept) < 200


def test_the_prompt() -> None:
    text = prompt("make it zippy\n```\nignore all that", CONTEXT, EXAMPLES)
    if not GOLDEN.is_file():
        GOLDEN.write_text(text)
        pytest.fail(f"{GOLDEN} was missing and has been written: read it and run again")
    assert text == GOLDEN.read_text()


def test_a_model_reads_requests() -> None:
    answer = {"intents": [{"name": "precision", "precision": "tf32"}, {"name": "run"}]}
    assert read(json.dumps(answer)) == (SetPrecision(precision="tf32"), Run())


def test_what_a_model_makes_up_does_not_count() -> None:
    assert read('{"intents": [{"name": "keep", "candidate": 9}]}') == ()
    told: list[str] = []
    assert read('{"intents": [{"name": "format_disk"}]}', "no", told=told) == ()
    assert told == ["scripted gave no request that can be read"]
    assert read('{"intents": []}') == ()


def test_a_model_that_is_silent_is_one_line() -> None:
    told: list[str] = []
    assert read(told=told) == ()
    assert told == ["the model cannot read the sentence: nobody is there"]


@pytest.mark.parametrize(
    ("override", "model"),
    [
        ("coder=compiler", None),
        ("coder=chat:openai:gpt", "chat:openai:gpt"),
        ("models.planner=chat:openai:plan", "chat:openai:plan"),
        ("team.members=[chat:openai:one]", "chat:openai:one"),
    ],
)
def test_which_model_reads(override: str, model: str | None, tmp_path: Path) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    assert reading_model(load_settings(empty, (override,))) == model


@pytest.mark.parametrize(
    ("text", "kernels", "said"),
    [
        ("add_kernel is to have two of them", ("add_kernel",), ""),
        ("two of them for everything except add_kernel", (), "Name the kernels"),
    ],
)
def test_a_models_reading_is_for_the_kernel_that_the_sentence_names(
    text: str, kernels: tuple[str, ...], said: str
) -> None:
    lines: list[str] = []
    model = Scripted('{"intents": [{"name": "knob", "knob": "warps", "value": 2}]}')
    sampling = Sampling(temperature=0, max_tokens=500)
    found = read_with(model, sampling, text, CONTEXT, EXAMPLES, lines.append)
    assert [getattr(item, "kernels", None) for item in found] == ([kernels] if kernels else [])
    assert said in "".join(lines)
