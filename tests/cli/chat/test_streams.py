"""Does a session live with streams that are closed, and with screens that are hardly there?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentkernel.chat.replies import StepRan
from agentkernel.chat.tree import Place
from agentkernel.cli.chat.conversation import INTERRUPTED, Conversation
from agentkernel.cli.chat.input import NotEdited, ScriptInput, editor_words, is_terminal
from agentkernel.cli.chat.screen import TextScreen, chat_console
from agentkernel.cli.chat.sessions import SessionOpening, session_folder
from agentkernel.cli.terminal import SignalState
from agentkernel.tools.problem.loading import LoadedProblem


def load_nothing() -> LoadedProblem:
    raise AssertionError("nothing is to be loaded")


def test_a_closed_standard_input_has_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert list(ScriptInput().lines()) == []
    assert not is_terminal(sys.stdin)
    assert isinstance(editor_words({}), NotEdited)


def test_a_stop_is_not_the_end_of_a_session_that_went_on() -> None:
    chat = Conversation(
        opening=SessionOpening(
            flags=None,
            on_event=lambda event: None,
            approve=lambda question: True,
            opened=lambda session: None,
            problem=load_nothing,
        ),
        feed=ScriptInput(),
        screen=TextScreen(chat_console()),
        closed=SignalState(),
        prompt=str,
    )
    chat.exit_code = INTERRUPTED
    chat._shown(StepRan(step=1, made=(), place=Place(), result=None, text="No new candidate."))
    assert chat.exit_code == 0


@pytest.mark.parametrize(("columns", "width"), [("0", 20), ("1", 20), ("20", 20), ("90", 90)])
def test_a_screen_has_room_for_words(
    columns: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert chat_console().width == width


@pytest.mark.parametrize("name", ["/", "", "..", "*", "[", "**/x", "a\0b"])
def test_a_strange_name_is_no_session(name: str, tmp_path: Path) -> None:
    for session in ("one-chat-1", "two-chat-1"):
        (tmp_path / session).mkdir()
        (tmp_path / session / "session.sqlite").touch()
    assert session_folder(tmp_path, name) is None


def test_the_beginning_of_one_name_is_enough(tmp_path: Path) -> None:
    (tmp_path / "one-chat-1").mkdir()
    (tmp_path / "one-chat-1/session.sqlite").touch()
    assert session_folder(tmp_path, "one") == tmp_path / "one-chat-1"
    (tmp_path / "one-run").mkdir()
    assert session_folder(tmp_path, "one") is None
