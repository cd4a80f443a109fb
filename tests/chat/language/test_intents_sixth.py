"""How does a sixth set of everyday wishes fare, written by somebody who saw no reader?

As it stood, 36 of 100 were understood, 6 asked back, and 7 misread, two of which changed something
(bf16 inputs as a looser precision, with a run; "fix it" behind a question about c3 ran on from the
current candidate). The figures below are those after kinds of wish were added, so that they are a
floor, and no estimate. No sentence of it is among those that the weights were learned from.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter

from agentkernel.chat.language import understand
from agentkernel.chat.language.wording import spelt_out, without_asides
from agentkernel.chat.requests import (
    Ambiguous,
    AskFact,
    OnCandidate,
    SetBudget,
    SetDtype,
    SetKnob,
    SetPrecision,
    Understood,
)
from tests.chat.language.test_intents_fifth import CONTEXT, Row
from tests.chat.language.test_intents_paraphrases import SENTENCES, name_of

LEAST_UNDERSTOOD = 93
MOST_MISREAD = 0

ROWS = TypeAdapter(tuple[Row, ...]).validate_python(
    yaml.safe_load(Path(__file__).with_name("blind_6.yaml").read_text(encoding="utf-8"))
)


def is_read(row: Row) -> bool | None:
    """True where all of it is read as it is meant; None where it is not understood or asked."""
    before = understand(row.after, CONTEXT) if row.after else None
    last = before.intents if isinstance(before, Understood) else ()
    found = understand(row.text, CONTEXT.evolve(last=last))
    if not isinstance(found, Understood):
        return None
    names = [name_of(item) for item in found.intents]
    values = {
        key: value
        for item in found.intents
        for key, value in item.model_dump(mode="json").items()
        if key != "about" or "about" not in row.slots or value == row.slots["about"]
    }
    return (
        len(names) == len(row.means)
        and all(name in meant.split("|") for name, meant in zip(names, row.means, strict=True))
        and all(values.get(key) == value for key, value in row.slots.items())
    )


def test_most_are_understood_and_none_is_misread() -> None:
    read = {row.text: is_read(row) for row in ROWS}
    misread = [text for text, found in read.items() if found is False]
    assert len(misread) <= MOST_MISREAD, misread
    assert sum(found is True for found in read.values()) >= LEAST_UNDERSTOOD


@pytest.mark.parametrize("row", [row for row in ROWS if row.means == ("cannot",)], ids=str)
def test_what_is_never_done_is_said(row: Row) -> None:
    assert is_read(row)


def test_none_of_it_was_learned() -> None:
    learned = {
        line.strip().lower()
        for path in SENTENCES.rglob("*.txt")
        for line in path.read_text(encoding="utf-8").splitlines()
    }
    common = {"undo", "save it", "profile it", "compare candidates 2 and 5"}
    assert {row.text.lower() for row in ROWS} & learned <= common


@pytest.mark.parametrize(
    "text",
    ["run it in bf16", "rerun this with bfloat16", "make it work in bf16", "make it bf16",
     "I want it in bf16", "make the kernel run in bfloat16"],
)  # fmt: skip
def test_bf16_inputs_and_bf16_arithmetic_are_told_apart_by_the_user(text: str) -> None:
    found = understand(text, CONTEXT)
    assert isinstance(found, Ambiguous)
    inputs, arithmetic = found.options
    assert inputs[0] == SetDtype(dtype="bfloat16")
    assert arithmetic[0] == SetPrecision(precision="bf16")


def test_fix_it_is_about_the_candidate_that_was_asked_about() -> None:
    asked = CONTEXT.evolve(last=(OnCandidate(name="why_rejected", candidate=3),))
    assert understand("fix it then", asked) == Understood(
        intents=(OnCandidate(name="repair", candidate=3),)
    )
    assert understand("fix it then", CONTEXT) == Understood(intents=(OnCandidate(name="repair"),))
    named = understand("fix c2", asked)
    assert named == Understood(intents=(OnCandidate(name="repair", candidate=2),))


def test_a_question_about_sizes_sets_none_unasked() -> None:
    found = understand("why is it slow at 128 rows", CONTEXT)
    assert isinstance(found, Ambiguous)
    assert found.options[0] == (OnCandidate(name="why_slow"),)
    plain = understand("why is it so slow on the small case", CONTEXT)
    assert plain == Understood(intents=(OnCandidate(name="why_slow"),))


@pytest.mark.parametrize(
    ("text", "spelt"),
    [
        ("w/o the wrapper", "without the wrapper"),
        ("sweep w/ 4 warps", "sweep with 4 warps"),
        ("shwo the trition code", "show the triton code"),
        ("bf16 for n and m", "bf16 for n and m"),
    ],
)
def test_shorthand_is_spelt_out(text: str, spelt: str) -> None:
    assert spelt_out(text) == spelt


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("does it spill? mine came out slow.", "does it spill?"),
        ("does it spill? I need 8 warps.", "does it spill? I need 8 warps."),
        ("no bf16", "no bf16"),
        ("make it deterministic even if it costs us a few %", "make it deterministic"),
    ],
)
def test_asides_go_and_demands_stay(text: str, left: str) -> None:
    assert without_asides(text) == left


def test_a_wish_beside_a_question_is_not_dropped() -> None:
    found = understand("does it spill? I want 8 warps.", CONTEXT)
    assert found == Understood(
        intents=(AskFact(about="resources"), SetKnob(knob="warps", value=8)),
    )
    other = understand("how did you time it? Please use 10 minutes", CONTEXT)
    assert not isinstance(other, Understood) or SetBudget(seconds=600) in other.intents
