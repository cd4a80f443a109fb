"""Are a kernel's own words understood, and nothing beside them?"""

from __future__ import annotations

from typing import Literal, get_args

import pytest

from agentkernel.chat.language import understand
from agentkernel.chat.requests import (
    AskFact,
    AskGpu,
    Cannot,
    Fact,
    Impossible,
    Intent,
    IntentContext,
    Knob,
    OtherModule,
    Plain,
    SetKnob,
    Sweep,
    SweepAxis,
    Understood,
)
from agentkernel.chat.user_input import sentence

SIZES: tuple[tuple[int, Literal["M", "N", "K"]], ...] = ((128, "M"), (64, "N"), (32, "K"))
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
    ("speed", "how does it compare with torch.compile?"),
    ("speed", "is it faster than eager"),
    ("launch", "what tile sizes did you end up with"),
    ("resources", "registers per thread and spills"),
    ("resources", "why is occupancy so low"),
    ("accuracy", "how big is the error"),
    ("holds", "which dimensions are fixed"),
    ("holds", "does it work with odd sizes"),
    ("checked", "how did you verify c2?"),
    ("checked", "does it need contiguous inputs"),
    ("fusion", "which operators were fused"),
    ("least_error", "what is the most accurate candidate"),
    ("accumulate", "what does it accumulate in"),
    ("autotune", "is it autotuned"),
    ("noise", "benchmark it again"),
    ("whole_model", "how much speedup end-to-end"),
    ("package", "make a torch custom op of it"),
    ("assembly", "show me the sass of the epilogue"),
)
KNOBS: tuple[tuple[SetKnob, str], ...] = (
    (SetKnob(knob="warps", value=4), "use 4 warps"),
    (SetKnob(knob="warps", value=8), "num_warps=8"),
    (SetKnob(knob="warps", value=8), "can you try 8 warps"),
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
    (SetKnob(knob="warps", value=2), "go with 2 warps"),
    (SetKnob(knob="warps", value=16), "crank the warps up to 16"),
    (SetKnob(knob="warps", value=8), "increase the warps from 4 to 8"),
    (SetKnob(knob="warps", value=16), "try 16 wraps"),
    (SetKnob(knob="stages", value=4), "4 stages instead of 3"),
    (SetKnob(knob="block", value=64, axis="M"), "set BLOCK_M to 64, leave N as is"),
    (SetKnob(knob="registers", value=0), "drop the register limit"),
    (SetKnob(knob="warps", former=True), "put the warps back to what they were"),
    (SetKnob(knob="tensor_cores", value=1), "use the tensor cores"),
    (SetKnob(knob="split_k", value=0), "avoid split-K"),
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


def test_tiles_are_of_their_axes() -> None:
    m, n, k = (SetKnob(knob="block", value=size, axis=axis) for size, axis in SIZES)
    assert read("use tiles of 128x64x32") == (m, n, k)
    assert read("a tile of 128x64") == (m, n)


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("sweep warps 2,4 and stages 1-3, give me a table", {"warps": (2, 4), "stages": (1, 2, 3)}),
        ("try 4, 8 and 16 warps", {"warps": (4, 8, 16)}),
        ("scan block sizes 64, 128", {"block": (64, 128)}),
    ],
)
def test_a_sweep_is_of_several_values(text: str, axes: dict[Knob, tuple[int, ...]]) -> None:
    made = tuple(SweepAxis(knob=knob, values=values) for knob, values in axes.items())
    assert read(text) == (Sweep(axes=made),)


@pytest.mark.parametrize(
    "text", ["sweep the floor", "try 4 and 8", "sweep stages 3-1", "try 4 warps, ok?"]
)
def test_no_other_sentence_is_a_sweep(text: str) -> None:
    assert not any(isinstance(item, Sweep) for item in read(text))


def after(last: str, text: str) -> tuple[Intent, ...]:
    found = understand(text, CONTEXT.evolve(last=read(last)))
    return found.intents if isinstance(found, Understood) else ()


def test_a_sentence_may_go_back_to_the_one_before() -> None:
    assert after("use 4 warps", "and with 8?") == (SetKnob(knob="warps", value=8),)
    assert after("use 4 warps", "no, 16") == (SetKnob(knob="warps", value=16),)
    assert after("a tile of 64x64", "sorry, 128x64")[0] == SetKnob(
        knob="block", value=128, axis="M"
    )
    assert after("is it faster than torch.compile?", "max-autotune i mean") == (
        AskFact(about="speed"),
    )
    assert after("would it win on an h100?", "and on a100?") == (AskGpu(target="a100"),)
    assert not any(isinstance(item, SetKnob) for item in after("undo", "and with 8?"))


def test_two_halves_are_both_done() -> None:
    assert read("8 warps and show me the sass after") == (
        SetKnob(knob="warps", value=8),
        AskFact(about="assembly"),
    )


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
        "more blocks of code",
        "train it",
        "never mind the h100, take the a100",
        "use batch size 64",
        "use a smaller batch size",
        "what about other shapes",
        "make the results reproducible in the docs",
        "targets",
        "keep the one with 8 warps",
        "go back to the one with 4 stages",
        "no 128x64 tiles",
        "don't use tiles of 128x64",
        "we had tiles of 128x64",
        "what do the docs say about bank conflicts",
        "my colleague autotunes everything",
    ],
)
def test_nothing_else_is_taken_for_one(text: str) -> None:
    assert not any(isinstance(item, AskFact | SetKnob) for item in read(text))


EVERY: tuple[Fact, ...] = get_args(Fact)
OF_NONE: tuple[Fact, ...] = ("least_error", "fastest", "meaning")
"""Facts about no one candidate."""
WISHES: tuple[Knob, ...] = ("tensor_cores", "persistent", "deterministic")


@pytest.mark.parametrize(
    "intent",
    [
        *(AskFact(about=about) for about in EVERY),
        *(AskFact(about=about, candidate=2) for about in EVERY if about not in OF_NONE),
        *(SetKnob(knob=knob, value=int(knob != "tensor_cores")) for knob in WISHES),
        *(item for item, _ in KNOBS),
        *(Cannot(about=about) for about in get_args(Impossible)),
        AskGpu(target="a100"),
        AskGpu(target="a100", shared_kb=64),
        OtherModule(path="layers/mlp.py"),
        OtherModule(path="mlp.py", class_name="Mlp"),
        Sweep(axes=(SweepAxis(knob="warps", values=(2, 4)),)),
    ],
)
def test_what_the_transcript_says_is_understood_again(intent: Intent) -> None:
    assert read(sentence(intent)) == (intent,)
