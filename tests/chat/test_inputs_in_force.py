"""Is "it" a candidate that counts for the inputs in force, and never a refused one not named?"""

from __future__ import annotations

import pytest

from agentkernel.chat.replies import (
    EditRequested,
    Explained,
    FilesWritten,
    PositionChanged,
    Reply,
    StepRan,
    TextReply,
)
from agentkernel.chat.requests import OnCandidate, SetDtype, SetShapes, Size
from agentkernel.chat.session import Session

WRONG = "# wrong\nimport torch\n\n\nclass ModelNew:\n    pass\n"
RIGHT = "import torch\n\n\nclass ModelNew:\n    pass\n"
NONE = "There is no candidate for these inputs yet: 'run' drafts one."
ABOUT_IT = (
    "how much faster is it than eager?",
    "is this safe to ship?",
    "can it handle batch 7?",
    "what is occupancy",
    "how many warps does it use?",
    "how accurate is it?",
    "save it",
    "keep it",
    "discard it",
    "verify it",
    "show the certificate",
    "how do I use it in my model?",
    "compare it with the original",
    "use 4 warps",
)


def text_of(reply: Reply) -> str:
    assert isinstance(reply, TextReply | PositionChanged | FilesWritten | StepRan), reply
    return reply.text


@pytest.fixture
def elsewhere(ran: Session) -> Session:
    """c1 is right, c4 refused and the last, and the session stands at the module in fp16."""
    ran.offer(WRONG, 1, "edited")
    ran.say("go back to c1")
    ran.do(SetDtype(dtype="float16"))
    assert ran.tree.place.candidate is None
    return ran


@pytest.mark.parametrize("asked", ABOUT_IT)
def test_no_candidate_is_it_for_inputs_that_nobody_drafted_for(
    elsewhere: Session, asked: str
) -> None:
    before = elsewhere.tree
    (reply,) = elsewhere.say(asked)
    assert text_of(reply) == NONE
    assert elsewhere.tree == before


def test_other_sizes_are_other_inputs_too(ran: Session) -> None:
    ran.do(SetShapes(sizes=(Size(name="batch", value=6),)))
    assert text_of(ran.say("is it faster than torch.compile?")[0]) == NONE


def test_why_slow_is_asked_of_the_module_there(elsewhere: Session) -> None:
    for asked in ("why is it slow?", "show the roofline"):
        (reply,) = elsewhere.say(asked)
        assert isinstance(reply, Explained)
        assert reply.name == "plus.py"


def test_what_is_named_is_answered_whatever_it_is_for(elsewhere: Session) -> None:
    (named,) = elsewhere.say("is c4 faster than torch.compile?")
    assert text_of(named).startswith("c4: refused")
    (why,) = elsewhere.say("why was it refused?")
    assert isinstance(why, Explained)
    assert why.name.startswith("c4: refused")
    assert "for these inputs" in text_of(elsewhere.say("keep the fastest")[0])


def test_at_the_module_it_is_the_newest_right_one_for_the_inputs(elsewhere: Session) -> None:
    elsewhere.offer(RIGHT, None, "pasted")
    elsewhere.offer(WRONG + "# twice\n", None, "pasted")
    elsewhere.do(OnCandidate(name="return_to", candidate="original"))
    assert elsewhere.tree.place.candidate is None
    assert text_of(elsewhere.say("how accurate is it?")[0]).startswith("c5: error")


def test_refused_ones_alone_are_said_to_be_there(elsewhere: Session) -> None:
    elsewhere.offer(WRONG, None, "pasted")
    elsewhere.do(OnCandidate(name="return_to", candidate="original"))
    said = text_of(elsewhere.say("how accurate is it?")[0])
    assert said.startswith("No candidate is right for these inputs yet: 'run' drafts others")
    assert "'why was c5 refused?'" in said
    (opened,) = elsewhere.say("edit it")
    assert isinstance(opened, EditRequested)
    assert opened.number == 5
