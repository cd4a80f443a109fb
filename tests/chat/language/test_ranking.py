"""The ranking of every request: what it reads by itself, what it asks back, what it never does."""

from __future__ import annotations

import pytest
from train_classifier import sources_digest

from agentkernel.chat.language import understand
from agentkernel.chat.language.classifier import RANKING_FILE, load
from agentkernel.chat.language.grammar import read_only_requests
from agentkernel.chat.language.ranking import RankedReading, label_of, read_ranked
from agentkernel.chat.requests import (
    Ambiguous,
    AskFact,
    AskGpu,
    Cannot,
    Compare,
    Intent,
    NotUnderstood,
    OnCandidate,
    OtherModule,
    SetKnob,
    SetShapes,
    SetTarget,
    Size,
    StopAt,
    Understood,
)
from tests.chat.language.test_intents_fifth import CONTEXT

MOST_BYTES = 2_000_000


def ranked(text: str) -> RankedReading:
    return read_ranked(text, CONTEXT, load(RANKING_FILE))


def test_the_weights_are_those_of_the_sentences_and_small() -> None:
    assert load(RANKING_FILE).digest == sources_digest()
    assert RANKING_FILE.stat().st_size <= MOST_BYTES


@pytest.mark.parametrize(
    ("text", "intent"),
    [
        ("hey, so is the thing eating a lot of registers or not really", "fact=resources"),
        ("my colleague asks in which number format the partial sums are held", "fact=accumulate"),
        ("which of the ops ended up in the same kernel in the end", "fact=fusion"),
        ("the company wants the kernel in plain cuda c++ and not in triton", "cannot=language"),
        ("drop the whole team a line on slack as soon as you are through", "cannot=message"),
        ("the tests are too picky about errors, relax rtol somewhat", "cannot=tolerance"),
        ("please make the thing run with sixteen warps", "knob=warps"),
    ],
)
def test_requests_in_words_of_ones_own_are_read_by_the_ranking(text: str, intent: str) -> None:
    found = ranked(text)
    near = [item for option in (found.requests, *found.options) for item in option]
    assert intent in [label_of(item) for item in near]


@pytest.mark.parametrize(
    ("text", "intents"),
    [
        ("set num_stages to 3 instead of 2 please", (SetKnob(knob="stages", value=3),)),
        (
            "use BLOCK_M=64 and BLOCK_N=128",
            (
                SetKnob(knob="block", value=64, axis="M"),
                SetKnob(knob="block", value=128, axis="N"),
            ),
        ),
        ("speed up the class Mlp in nets/mlp.py", (OtherModule(path="nets/mlp.py",
                                                               class_name="Mlp"),)),
        ("1.3x was too low, go for 2.5x", (StopAt(speedup=2.5),)),
    ],
)  # fmt: skip
def test_values_are_read_wherever_they_stand(text: str, intents: tuple[Intent, ...]) -> None:
    assert understand(text, CONTEXT) == Understood(intents=intents)


@pytest.mark.parametrize(
    "text",
    [
        "we used 8 warps in the old kernel",
        "don't set num_warps to 8",
        "the manual says to use 8 warps",
        "use 8 warps if it does not spill",
        "make the warps a bit, you know, whatever",
        "whoever set this to fp16 should be fired",
        "when everything is through, save it to x.py",
        "why would anybody go for 16 warps",
        "keep the one with 8 warps",
    ],
)
def test_nothing_uncertain_acts(text: str) -> None:
    found = understand(text, CONTEXT)
    if isinstance(found, Understood):
        assert {item.name for item in found.intents} <= read_only_requests()


def test_near_readings_are_both_offered() -> None:
    found = understand("bf16, and tell me the error once it's done", CONTEXT)
    assert isinstance(found, Ambiguous)
    assert len(found.options) > 1


def test_a_text_about_nothing_here_is_not_understood() -> None:
    assert isinstance(understand("paint the kitchen in a light green", CONTEXT), NotUnderstood)


@pytest.mark.parametrize(
    ("before", "text", "intent"),
    [
        (AskGpu(target="a100"), "and h200?", AskGpu(target="h200")),
        (SetTarget(target="a100"), "no, b200", SetTarget(target="b200")),
        (AskFact(about="resources"), "and c3?", AskFact(about="resources", candidate=3)),
        (
            OnCandidate(name="why_rejected", candidate=3),
            "what about c2",
            OnCandidate(name="why_rejected", candidate=2),
        ),
        (
            SetShapes(sizes=(Size(name="batch", value=4),)),
            "and with 16?",
            SetShapes(sizes=(Size(name="batch", value=16),)),
        ),
        (StopAt(speedup=2), "make it 3x", StopAt(speedup=3)),
    ],
)
def test_a_value_alone_goes_back_to_the_line_before(
    before: Intent, text: str, intent: Intent
) -> None:
    assert understand(text, CONTEXT.evolve(last=(before,))) == Understood(intents=(intent,))


def test_a_comparison_is_asked_once() -> None:
    found = ranked("which one is quicker, c2 or c5")
    assert found.requests == (Compare(first=2, second=5),)


def test_what_is_never_done_is_said_whatever_stands_beside_it() -> None:
    found = understand("could you compute in fp32 but store the output in bf16?", CONTEXT)
    assert found == Understood(intents=(Cannot(about="rounding"),))
