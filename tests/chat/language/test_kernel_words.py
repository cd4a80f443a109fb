"""Are a kernel's own words understood, and nothing beside them?"""

from __future__ import annotations

import pytest

from agentkernel.chat.language import understand
from agentkernel.chat.requests import (
    AskFact,
    Fact,
    Intent,
    IntentContext,
    Knob,
    Plain,
    SetKnob,
    Understood,
)
from agentkernel.chat.user_input import sentence

CONTEXT = IntentContext(targets=("h100", "a100"), candidates=(1, 2, 3), current=3)
FACTS: tuple[tuple[Fact, str], ...] = (
    ("launch", "how many warps does it use?"),
    ("launch", "what block size does c2 use"),
    ("launch", "what's the grid?"),
    ("launch", "how many stages?"),
    ("launch", "is it persistent?"),
    ("resources", "how many registers does it need?"),
    ("resources", "does it spill?"),
    ("resources", "how much shared memory?"),
    ("resources", "does it use tensor cores?"),
    ("assembly", "show me the PTX"),
    ("assembly", "can I see the SASS?"),
    ("accuracy", "how accurate is it compared to eager?"),
    ("accuracy", "what is the error against fp64?"),
    ("holds", "which sizes are free?"),
    ("holds", "can I use it with another batch size?"),
    ("holds", "does it work in training?"),
    ("holds", "is it eval only?"),
    ("holds", "does it support backward?"),
    ("repeatable", "is it bitwise repeatable?"),
    ("repeatable", "do I get the same bits every time?"),
    ("speed", "is it faster than torch.compile?"),
    ("speed", "how much faster than torch.compile is it?"),
    ("use", "how do I put this in my model?"),
    ("use", "how do I use it?"),
    ("launch", "how many kernels does it launch?"),
    ("holds", "what shapes was it verified for?"),
    ("speed", "how does it compare with torch.compile?"),
)
KNOBS: tuple[tuple[SetKnob, str], ...] = (
    (SetKnob(knob="warps", value=4), "use 4 warps"),
    (SetKnob(knob="warps", value=8), "num_warps=8"),
    (SetKnob(knob="warps", value=8), "can you try 8 warps?"),
    (SetKnob(knob="warps", more=True), "more warps"),
    (SetKnob(knob="stages", value=3), "set num_stages to 3"),
    (SetKnob(knob="stages"), "fewer stages please"),
    (SetKnob(knob="block", value=128), "use a block size of 128"),
    (SetKnob(knob="block", value=64, axis="N"), "set BLOCK_N to 64"),
    (SetKnob(knob="block", value=64, axis="K"), "use block_k=64"),
    (SetKnob(knob="block"), "try a smaller block size"),
    (SetKnob(knob="warps", more=True), "double the warps"),
    (SetKnob(knob="tensor_cores", value=0), "turn off tensor cores"),
    (SetKnob(knob="deterministic", value=1), "I need deterministic results"),
    (SetKnob(knob="persistent", value=1), "try a persistent version"),
    (SetKnob(knob="registers"), "use fewer registers"),
    (SetKnob(knob="registers"), "reduce register pressure"),
    (SetKnob(knob="registers", value=64), "limit registers to 64"),
    (SetKnob(knob="tensor_cores", value=0), "no tensor cores"),
    (SetKnob(knob="tensor_cores", value=0), "don't use tensor cores"),
    (SetKnob(knob="persistent", value=1), "make it persistent"),
    (SetKnob(knob="deterministic", value=1), "deterministic please"),
)


def read(text: str) -> tuple[Intent, ...]:
    found = understand(text, CONTEXT)
    return found.intents if isinstance(found, Understood) else ()


@pytest.mark.parametrize(("about", "text"), FACTS)
def test_a_fact_can_be_asked(about: Fact, text: str) -> None:
    (found,) = read(text)
    assert isinstance(found, AskFact)
    assert found.about == about
    assert found.candidate == (2 if "c2" in text else "current")


@pytest.mark.parametrize(("wanted", "text"), KNOBS)
def test_a_wish_about_the_launch_is_understood(wanted: SetKnob, text: str) -> None:
    assert read(text) == (wanted,)


def test_several_wishes_in_one_sentence() -> None:
    wanted = (SetKnob(knob="warps", value=4), SetKnob(knob="stages", value=2))
    assert read("use 4 warps and 2 stages") == wanted


@pytest.mark.parametrize("text", ["never mind", "actually, never mind", "oh nevermind then", "nvm"])
def test_never_mind_asks_for_nothing(text: str) -> None:
    assert read(text) == (Plain(name="decline"),)


@pytest.mark.parametrize(
    "text",
    [
        "we use 4 warps",
        "it uses 4 warps",
        "I think 4 warps were better",
        "do not use 4 warps",
        "use 4 warps on the h100 only at night",
        "what is a warp scheduler",
        "use 4",
        "fix the errors",
        "what was the error?",
        "what is a warp?",
        "what is occupancy",
        "more blocks of code",
        "train it",
        "never mind the h100, take the a100",
        "use batch size 64",
        "use a smaller batch size",
        "what about other shapes",
        "make the results reproducible in the docs",
    ],
)
def test_nothing_else_is_taken_for_one(text: str) -> None:
    assert not any(isinstance(item, AskFact | SetKnob) for item in read(text))


EVERY: tuple[Fact, ...] = (
    "launch", "resources", "assembly", "accuracy", "holds", "repeatable", "speed", "use",
)  # fmt: skip
WISHES: tuple[Knob, ...] = ("tensor_cores", "persistent", "deterministic")


@pytest.mark.parametrize(
    "intent",
    [
        *(AskFact(about=about) for about in EVERY),
        *(AskFact(about=about, candidate=2) for about in EVERY),
        *(SetKnob(knob=knob, value=int(knob != "tensor_cores")) for knob in WISHES),
        *(item for item, _ in KNOBS),
    ],
)
def test_what_the_transcript_says_is_understood_again(intent: AskFact | SetKnob) -> None:
    assert read(sentence(intent)) == (intent,)
