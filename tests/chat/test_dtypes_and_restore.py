"""Is it said which dtypes a candidate takes, and how a kernel comes out of a model again?"""

from __future__ import annotations

import pytest

from agentkernel.chat.language.questions import read_certain
from agentkernel.chat.replies import Reply, TextReply
from agentkernel.chat.requests import SetDtype
from agentkernel.chat.session import Session

TAKEN_OUT = (
    "how do I undo apply?",
    "how do I unapply it?",
    "can I undo apply_all?",
    "how do I undo apply_all on my model?",
    "how can I take the kernel out of my model again?",
    "how do I take it out again?",
    "how do I remove it from my model?",
    "how do I put the original layer back?",
    "how do I get the original layers back in my model?",
    "how do I restore the original module?",
    "how do I go back to pytorch in my model?",
    "is there a way to get the original layer back?",
    "put the original layer back in my model",
    "restore my model",
)
NOT_TAKEN_OUT = (
    "how do I put it in my model?",
    "how do I swap it in?",
    "how do I undo that?",
    "throw it out",
    "restore the original",
    "go back to the original",
    "undo",
    "undo that and apply tf32",
    "what does the documentation say about undoing apply?",
)
OTHER_DTYPE = (
    "does it work for fp16?",
    "does c1 work for fp16?",
    "can it run in half precision",
    "does it support half?",
    "does it take float16 inputs?",
    "can I use it with fp16?",
    "what if my inputs are fp16?",
    "what happens with fp16 inputs?",
    "are fp16 inputs ok?",
)
OWN_DTYPE = ("is it fp32 only?", "does it only work in fp32?", "does it accept float32 tensors?")
ALL_DTYPES = ("which dtypes does it take", "what dtype is it for?", "what dtypes are supported?")
NOT_OF_DTYPES = (
    "does it accumulate in fp32?",
    "does it work in training?",
    "can it handle batch 7?",
    "does it work with a single input?",
    "is bf16 allowed?",
    "would it run faster in bf16?",
    "which dtypes were tested?",
    "what about fp16?",
    "use fp16 inputs",
)


def text_of(reply: Reply) -> str:
    assert isinstance(reply, TextReply), reply
    return reply.text


@pytest.mark.parametrize("asked", TAKEN_OUT)
def test_restore_is_named(ran: Session, asked: str) -> None:
    before = ran.tree
    assert "agentkernel.restore(model)" in text_of(ran.say(asked)[0])
    assert ran.tree == before


def test_restore_needs_no_candidate(session: Session) -> None:
    assert "agentkernel.restore(model)" in text_of(session.say("how do I undo apply?")[0])


@pytest.mark.parametrize("asked", OTHER_DTYPE)
def test_another_dtype_is_no_with_what_drafts_for_it(ran: Session, asked: str) -> None:
    assert text_of(ran.say(asked)[0]) == (
        "No: c1 takes x float32 alone, as it was judged. 'use fp16 inputs' and 'run' draft one for "
        "float16."
    )


@pytest.mark.parametrize("asked", OWN_DTYPE)
def test_the_own_dtype_is_yes(ran: Session, asked: str) -> None:
    assert text_of(ran.say(asked)[0]) == "Yes: c1 takes x float32 alone, as it was judged."


@pytest.mark.parametrize("asked", ALL_DTYPES)
def test_all_dtypes_are_said(ran: Session, asked: str) -> None:
    assert text_of(ran.say(asked)[0]).startswith("c1 takes x float32 alone, as it was judged. 'use")


def test_a_candidate_for_the_dtype_is_named(ran: Session) -> None:
    ran.do(SetDtype(dtype="bfloat16"))
    ran.offer("import torch\n\n\nclass ModelNew:\n    pass\n", None, "pasted")
    assert text_of(ran.say("can it run in bf16?")[0]) == (
        "Yes: c4 takes x bfloat16 alone, as it was judged."
    )
    assert text_of(ran.say("does c1 work in bf16?")[0]) == (
        "No: c1 takes x float32 alone, as it was judged. c4 is for bfloat16."
    )
    assert text_of(ran.say("does c2 work in bf16?")[0]).startswith("c2: refused")


def test_sizes_and_dtypes_asked_together_are_both_answered(ran: Session) -> None:
    said = text_of(ran.say("does it handle fp16 and other batch sizes?")[0])
    assert said.startswith("No: c1 takes x float32 alone")
    assert "train and eval" in said


@pytest.mark.parametrize("asked", [*NOT_TAKEN_OUT, *NOT_OF_DTYPES])
def test_other_sentences_are_read_as_before(ran: Session, asked: str) -> None:
    assert not read_certain(asked)


def test_half_of_something_is_no_dtype(ran: Session) -> None:
    assert "alone" not in text_of(ran.say("does it handle half the batch?")[0])


def test_how_weights_are_loaded_is_no_question_of_restore(ran: Session) -> None:
    said = text_of(ran.say("can I restore my checkpoint into it, does the state_dict load?")[0])
    assert "from fast import ModelNew" in said
