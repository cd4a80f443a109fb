"""Is a slip in the Python API one clear line?"""

from __future__ import annotations

import pytest

from agentkernel.chat.replies import TextReply
from agentkernel.chat.requests import Plain
from agentkernel.chat.session import Session
from agentkernel.domain.errors import RunNotFound


@pytest.mark.parametrize("line", ["/status", "/show c1", "/SAVE x.py", "/ask-docs tl.dot\nplease"])
def test_a_command_is_not_taken_for_words(line: str, session: Session) -> None:
    (reply,) = session.say(line)
    assert isinstance(reply, TextReply), "a guess would be one 'yes' away from what nobody asked"
    assert not reply.ok
    assert f"{line.split()[0]!r} is a command of 'agentkernel chat'" in reply.text
    (after,) = session.say("yes")
    assert isinstance(after, TextReply)
    assert not after.ok


def test_a_path_is_no_command(session: Session) -> None:
    (reply,) = session.say("/tmp/x.py is where it should go")
    assert "is a command" not in getattr(reply, "text", "")


def test_a_closed_session_says_so(session: Session) -> None:
    session.close()
    session.close()
    for turn in (
        lambda: session.say("show the tree"),
        lambda: session.do(Plain(name="tree")),
        lambda: session.offer("class ModelNew: pass", None, "pasted"),
        session.transcript,
    ):
        with pytest.raises(RunNotFound, match=r"is closed. Expected an open one"):
            turn()


def test_a_folder_may_be_named_by_a_string(session: Session) -> None:
    session.close()
    with Session.reopen(str(session.folder)) as again:
        assert again.id == session.id


def test_the_status_does_not_deny_what_was_discarded(ran: Session) -> None:
    for name in ("c1", "c3"):
        ran.say(f"discard {name}")
    reply = ran.do(Plain(name="status"))
    assert isinstance(reply, TextReply)
    assert "Every right candidate is discarded" in reply.text
