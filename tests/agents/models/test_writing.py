"""What a model writes is told while it writes: seldom, whole and harmless."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.agents.models.endpoint_cases import options, question

# isort: split
from agentkernel.agents.models import protocol
from agentkernel.agents.models.protocol import (
    ANEW,
    EVERY_S,
    StreamedAnswer,
    TextPiece,
    safe_to_show,
)
from agentkernel.agents.models.provider import ModelProvider
from agentkernel.domain.errors import ModelUnavailable
from agentkernel.storage.records import Records
from tests.agents.models.chat_server import ChatServer, Cuts, Garbage, Says, Scripted, completion

KEY = "sk-sentinel-0123456789"
TEXT = "".join(f"line {number}\n" for number in range(400))


class Clock:
    """A clock that stands still between two pieces, or goes on by `step_s`."""

    def __init__(self, step_s: float) -> None:
        self.now, self.step_s = 0.0, step_s

    def monotonic(self) -> float:
        self.now += self.step_s
        return self.now


def written(*pieces: str, model: str = "m") -> list[TextPiece]:
    told: list[TextPiece] = []
    made = StreamedAnswer(model, question(), told.append)
    for piece in pieces:
        made.hear(piece)
    made.end()
    return told


def asked(*answers: Scripted, folder: Path) -> tuple[list[TextPiece], str, ModelProvider]:
    """What is told while the last of `answers` is given, and that answer."""
    told: list[TextPiece] = []
    with ChatServer(list(answers)) as server:
        provider = ModelProvider(
            Records(folder / "r.sqlite"), server.url, options(), on_piece=told.append
        )
        reply = provider.model("chat:openai:scripted").ask(question())
    return told, reply.texts[0], provider


def test_many_pieces_are_told_as_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "time", Clock(EVERY_S / 50))
    told = written(*TEXT)
    assert "".join(item.text for item in told) == TEXT
    assert len(TEXT) / 60 < len(told) < len(TEXT) / 40
    assert [item.characters for item in told][-1] == len(TEXT)
    assert told[0].text == "l"


def test_slow_pieces_are_told_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "time", Clock(EVERY_S * 1.01))
    assert [item.text for item in written("a", "b", "c")] == ["a", "b", "c"]


def test_a_second_request_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "time", Clock(EVERY_S / 50))
    told = written("half of ", "it", ANEW, "all of ", "it")
    assert [(item.text, item.characters) for item in told] == [("half of ", 8), ("all of it", 9)]


def test_a_key_is_told_by_its_name_wherever_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(protocol, "EVERY_S", 0.0)
    for at in range(1, len(KEY)):
        told = written(f"it is {KEY[:at]}", f"{KEY[at:]}.")
        assert "".join(item.text for item in told) == "it is <OPENAI_API_KEY>."
        assert not any(KEY[:4] in item.text for item in told)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jgone\x07", "\\x1b[2Jgone\\x07"),
        ("a\tb\r\nc\rd", "a\tb\nc\\rd"),
        ("x\u202ey\u200bz", "x\\u202ey\\u200bz"),
        ("\ud83d", "?"),
        ("äß漢", "äß漢"),
    ],
)
def test_nothing_told_steers_a_screen(text: str, shown: str) -> None:
    assert safe_to_show(text) == shown
    assert "".join(item.text for item in written(text)) == shown


def test_a_stream_is_told_while_it_lasts(tmp_path: Path) -> None:
    began = time.monotonic()
    told, text, provider = asked(Says(TEXT, pause_s=0.01), folder=tmp_path)
    lasted = time.monotonic() - began
    assert "".join(item.text for item in told) == text == TEXT
    assert 3 < len(told) <= lasted / EVERY_S + 2
    assert {(item.agent, item.model, item.round) for item in told} == {
        ("coder", "chat:openai:scripted", 1)
    }
    exchange = provider.answered()[0]
    assert (exchange.reply.usage.prompt, exchange.reply.usage.completion) == (100, 20)


def test_a_stream_that_breaks_is_told_anew(tmp_path: Path) -> None:
    told, text, _ = asked(Cuts("   \n"), Says("whole"), folder=tmp_path)
    assert text == "whole"
    assert (told[-1].text, told[-1].characters) == ("whole", 5)


def test_an_answer_from_the_record_is_not_written_again(tmp_path: Path) -> None:
    told, _, provider = asked(Says("once"), folder=tmp_path)
    assert len(told) == 1
    assert provider.model("chat:openai:scripted").ask(question()).texts == ("once",)
    assert len(told) == 1


def test_samples_of_one_request_are_told_when_they_are_there(tmp_path: Path) -> None:
    told: list[TextPiece] = []
    with ChatServer([Says(texts=("one", "two"))]) as server:
        provider = ModelProvider(
            Records(tmp_path / "r.sqlite"), server.url, options(), on_piece=told.append
        )
        provider.model("chat:openai:scripted").ask(question(samples=2))
    assert [item.text for item in told] == ["one"]


def test_an_endpoint_that_sends_no_stream_fails_as_before(tmp_path: Path) -> None:
    whole = Garbage(json.dumps(completion(Says("whole"), {})))
    with pytest.raises(ModelUnavailable):
        asked(whole, whole, whole, whole, whole, whole, folder=tmp_path)
