"""Is what lies past a session said in a line, with what there is instead, and nothing changed?"""

from __future__ import annotations

import re
from typing import get_args

import pytest

from agentkernel.chat.language import understand
from agentkernel.chat.limits import IMPOSSIBLE
from agentkernel.chat.replies import Source, StepRan, TextReply
from agentkernel.chat.requests import AskFact, Cannot, Fact, Impossible, Understood
from agentkernel.chat.session import Session
from agentkernel.chat.user_input import sentence

QUOTED = re.compile(r"'([^']+)'")


@pytest.mark.parametrize("about", get_args(Impossible))
def test_what_is_never_done_changes_nothing(ran: Session, about: Impossible) -> None:
    before = ran.tree
    reply = ran.do(Cannot(about=about))
    assert isinstance(reply, TextReply)
    assert not reply.ok
    assert reply.text.endswith("Nothing was changed.")
    assert "{" not in reply.text
    assert ran.tree == before


@pytest.mark.parametrize("about", get_args(Impossible))
def test_what_is_offered_instead_exists(ran: Session, about: Impossible) -> None:
    for said in QUOTED.findall(IMPOSSIBLE[about]):
        if not said.startswith("agentkernel "):
            found = understand(said, ran.context)
            assert isinstance(found, Understood), said
            assert not any(isinstance(item, Cannot) for item in found.intents), said


def test_another_module_is_another_session(ran: Session) -> None:
    before = ran.tree
    (reply,) = ran.say("optimise layers/mlp.py:Mlp")
    assert isinstance(reply, TextReply)
    assert "agentkernel chat layers/mlp.py:Mlp" in reply.text
    assert ran.tree == before


def test_the_own_module_is_run(session: Session) -> None:
    (reply,) = session.say("optimise plus.py")
    assert isinstance(reply, StepRan)


def test_another_gpu_is_asked_about_and_not_set(ran: Session) -> None:
    before = ran.tree
    (reply,) = ran.say("would this still win on a B200?")
    assert isinstance(reply, TextReply)
    assert "No candidate has a time on NVIDIA B200" in reply.text
    assert "Estimated there: eager" in reply.text
    assert "at most 227 KB of shared memory there" in reply.text
    (fits,) = ran.say("does 100k of smem fit on an L40S?")
    assert isinstance(fits, TextReply)
    assert fits.text.startswith("100 KB do not fit: a block may have at most 99 KB")
    (less,) = ran.say("does 99k of smem fit on an L40S?")
    assert isinstance(less, TextReply)
    assert less.text.startswith("99 KB fit")
    assert ran.tree == before


@pytest.mark.parametrize("about", get_args(Fact))
def test_every_fact_has_an_answer(ran: Session, about: Fact) -> None:
    before = ran.tree
    (reply,) = ran.say(sentence(AskFact(about=about)))
    assert isinstance(reply, TextReply)
    assert reply.text
    assert "Traceback" not in reply.text
    assert ran.tree == before


def test_the_most_accurate_come_first(ran: Session) -> None:
    (reply,) = ran.say("which candidate has the lowest error?")
    assert isinstance(reply, TextReply)
    _, _, *lines = reply.text.splitlines()
    assert {line.partition(":")[0] for line in lines} == {"c1", "c3"}


def test_a_kernel_is_shown_whole_and_alone(ran: Session) -> None:
    text = (
        "import triton\n\n\n@triton.jit\ndef k(x):\n    pass\n\n\n"
        "class ModelNew:\n    def forward(self, x):\n        return x\n"
    )
    ran.offer(text, None, "pasted")
    (shown,) = ran.say("just the kernel, not the wrapper")
    assert isinstance(shown, Source)
    assert shown.text == "@triton.jit\ndef k(x):\n    pass\n"
    assert shown.first == 4
    (none,) = ran.say("show only the kernel of c1")
    assert isinstance(none, TextReply)
    assert not none.ok


def test_praise_is_no_request(ran: Session) -> None:
    before = ran.tree
    (reply,) = ran.say("nice, 1.6x is more than I hoped for")
    assert isinstance(reply, TextReply)
    assert "Nothing was changed" in reply.text
    assert ran.tree == before


def test_several_sizes_of_one_dimension_are_several_problems(ran: Session) -> None:
    before = ran.tree
    (reply,) = ran.say("batch 32, 64 and 128 too")
    assert isinstance(reply, TextReply)
    assert "'use batch 32' and 'run'" in reply.text
    assert ran.tree == before
    assert isinstance(understand("use batch 32", ran.context), Understood)
