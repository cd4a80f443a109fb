"""One stated outcome for each way in which an endpoint misbehaves."""

from __future__ import annotations

import time
import traceback
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from tests.agents.models.endpoint_cases import SCHEMA, options, question

# isort: split
from agentkernel.agents.models.chat import ChatModel
from agentkernel.agents.models.retries import Retry, retry_after
from agentkernel.domain.errors import ModelUnavailable
from agentkernel.domain.exchange import Reply, Usage
from tests.agents.models.chat_server import Answer, ChatServer, Cuts, Garbage, Refuses, Says, Stalls

KEY = "sk-sentinel-0123456789"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


class Asked:
    """A model at `server` whose retries are kept."""

    def __init__(self, server: ChatServer, **changes: object) -> None:
        self.retries: list[Retry] = []
        chosen = options(**changes)
        self.model = ChatModel("chat:openai:scripted", server.url, chosen, self.retries.append)


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_what_no_attempt_mends_is_asked_once(status: int) -> None:
    with ChatServer([status]) as server, pytest.raises(ModelUnavailable):
        Asked(server).model.ask(question())
    assert len(server.requests) == 1


def test_the_key_is_sent_and_never_told() -> None:
    with ChatServer([401]) as server, pytest.raises(ModelUnavailable) as caught:
        Asked(server).model.ask(question())
    assert server.authorizations == [f"Bearer {KEY}"]
    assert KEY not in "".join(traceback.format_exception(caught.value))
    line = str(caught.value)
    assert "refuses the key" in line
    assert "<OPENAI_API_KEY>" in line
    assert "\n" not in line


def test_credentials_in_the_endpoint_are_never_told() -> None:
    with ChatServer([Refuses(404, text="no /v1 for user:hunter22")]) as server:
        url = server.url.replace("http://", "http://user:hunter22@")
        with pytest.raises(ModelUnavailable) as caught:
            ChatModel("chat:openai:scripted", url, options()).ask(question())
    assert "hunter22" not in str(caught.value)
    assert server.url in str(caught.value)


def test_a_key_in_an_answer_is_cut_out_of_pieces_and_text() -> None:
    pieces: list[str] = []
    with ChatServer([Says(f"{'x' * 30} {KEY} {'y' * 30}")]) as server:
        reply = Asked(server).model.ask(question(), pieces.append)
    assert reply.texts == (f"{'x' * 30} <OPENAI_API_KEY> {'y' * 30}",)
    assert "".join(pieces) == reply.texts[0]


def test_429_waits_as_long_as_it_is_told_to() -> None:
    with ChatServer([Refuses(429, {"Retry-After": "1"}), "Done."]) as server:
        asked = Asked(server)
        reply = asked.model.ask(question())
    assert (reply.texts, reply.attempts) == (("Done.",), 2)
    assert 1.0 <= server.times[1] - server.times[0] < 2.5
    assert [(item.kind, item.wait_s) for item in asked.retries] == [("rate_limit", 1.0)]


def test_429_never_waits_longer_than_is_allowed() -> None:
    with ChatServer([Refuses(429, {"Retry-After": "3600"}), "Done."]) as server:
        asked = Asked(server, longest_wait_s=0.2)
        assert asked.model.ask(question()).texts == ("Done.",)
    assert asked.retries[0].wait_s == 0.2


def test_an_empty_account_is_asked_once() -> None:
    script = [Refuses(429, text="insufficient_quota")]
    empty = pytest.raises(ModelUnavailable, match="account is empty")
    with ChatServer([*script]) as server, empty:
        Asked(server).model.ask(question())
    assert len(server.requests) == 1


@pytest.mark.quick(1)
@pytest.mark.parametrize("status", [500, 502, 503, 529])
def test_a_server_that_recovers_is_waited_for(status: int) -> None:
    with ChatServer([status, status, "Done."]) as server:
        asked = Asked(server, backoff_s=0.1)
        reply = asked.model.ask(question())
    assert (reply.texts, reply.attempts) == (("Done.",), 3)
    first, second = (item.wait_s for item in asked.retries)
    assert 0.05 <= first <= 0.1 <= second <= 0.2


def test_a_server_that_does_not_recover_ends_with_one_line() -> None:
    with ChatServer([500], forever=True) as server, pytest.raises(ModelUnavailable) as caught:
        Asked(server, attempts=4).model.ask(question())
    assert len(server.requests) == 4
    line = str(caught.value)
    assert f"'chat:openai:scripted' at {server.url} does not answer" in line
    assert "4 requests" in line
    assert "Next:" in line
    assert KEY not in line
    assert "\n" not in line


def test_attempts_end_with_the_time_for_the_answer() -> None:
    with ChatServer([503], forever=True) as server, pytest.raises(ModelUnavailable):
        Asked(server, attempts=1000, wall_s=0.5, backoff_s=0.05).model.ask(question())
    assert 1 < len(server.requests) < 10


def test_no_wait_goes_past_the_time_for_the_answer() -> None:
    began = time.monotonic()
    with ChatServer([503], forever=True) as server, pytest.raises(ModelUnavailable):
        Asked(server, wall_s=2.0, backoff_s=20.0).model.ask(question())
    assert time.monotonic() - began < 2
    assert len(server.requests) == 1


def test_nobody_listens() -> None:
    with ChatServer([]) as server:
        gone = Asked(server)
    with pytest.raises(ModelUnavailable, match=r"does not answer: .* \(3 requests"):
        gone.model.ask(question())
    assert [item.kind for item in gone.retries] == ["connection", "connection"]


@pytest.mark.parametrize("clean", [False, True])
def test_a_cut_stream_gives_what_came(clean: bool) -> None:
    with ChatServer([Cuts("class ModelNew", clean)]) as server:
        reply = Asked(server).model.ask(question())
    assert (reply.texts, reply.finish) == (("class ModelNew",), ("cut",))


@pytest.mark.parametrize("clean", [False, True])
def test_a_stream_cut_before_it_said_anything_is_tried_again(clean: bool) -> None:
    with ChatServer([Cuts("", clean), "Done."]) as server:
        reply = Asked(server).model.ask(question())
    assert (reply.texts, reply.finish) == (("Done.",), ("stop",))


def test_half_a_json_answer_is_tried_again() -> None:
    with ChatServer([Cuts('{"steps":'), '{"steps": 1}']) as server:
        reply = Asked(server).model.ask(question(answer_schema=SCHEMA))
    assert (reply.texts, reply.finish) == (('{"steps": 1}',), ("stop",))


@pytest.mark.quick(1)
@pytest.mark.parametrize("stall", [Stalls(60), Stalls(60, "half"), Stalls(60, pings=True)])
def test_a_stall_is_left_and_tried_again_once(stall: Stalls) -> None:
    began = time.monotonic()
    with ChatServer([stall, "Done."]) as server:
        asked = Asked(server)
        reply = asked.model.ask(question(timeout_s=0.4))
    assert (reply.texts, reply.finish) == (("Done.",), ("stop",))
    assert [item.kind for item in asked.retries] == ["timeout"]
    assert time.monotonic() - began < 5


@pytest.mark.slow
def test_a_second_stall_ends_the_question() -> None:
    ended = pytest.raises(ModelUnavailable, match=r"no word for 1.5 s \(2 requests")
    with ChatServer([Stalls(60)], forever=True) as server, ended:
        Asked(server, attempts=9).model.ask(question(timeout_s=1.5))
    assert len(server.requests) == 2


def test_a_second_stall_after_words_gives_the_words() -> None:
    with ChatServer([Stalls(60, "half")], forever=True) as server:
        reply = Asked(server).model.ask(question(timeout_s=0.3))
    assert (reply.texts, reply.finish) == (("half",), ("cut",))


def test_a_stalled_batch_is_left_too() -> None:
    with ChatServer([Stalls(60)], forever=True) as server, pytest.raises(ModelUnavailable):
        Asked(server).model.ask(question(samples=2, timeout_s=0.3))
    assert len(server.requests) == 2


@pytest.mark.quick(3)
@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("body", ["<html>welcome</html>", "{", "[]", "null", '{"choices": 1}'])
def test_what_is_no_chat_answer_is_tried_again(body: str, samples: int) -> None:
    script: list[Answer] = [Garbage(body), Says(texts=("a", "b"))]
    with ChatServer([*script, "b"]) as server:
        reply = Asked(server).model.ask(question(samples=samples))
    assert reply.texts == ("a", "b")[:samples]


def test_an_empty_answer_is_an_answer() -> None:
    with ChatServer([""]) as server:
        reply = Asked(server).model.ask(question())
    assert (reply.texts, reply.finish) == (("",), ("stop",))


def test_200_kb_of_prose_are_an_answer() -> None:
    prose = "It depends. " * 17_000
    with ChatServer([prose]) as server:
        reply = Asked(server).model.ask(question())
    assert reply.texts == (prose,)


@pytest.mark.parametrize(
    ("value", "seconds"), [("7", 7.0), ("0.5", 0.5), ("-3", 0.0), (None, None), ("soon", None)]
)
def test_retry_after_in_seconds(value: str | None, seconds: float | None) -> None:
    assert retry_after(value) == seconds


def test_retry_after_as_a_date() -> None:
    found = retry_after(format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True))
    assert found is not None
    assert 28 < found <= 30


@pytest.mark.quick(5)
@pytest.mark.parametrize("before", range(240, 300, 7))
def test_a_key_that_a_cut_would_halve_is_hidden_first(before: int) -> None:
    refusal = Refuses(400, text="A" * before)
    with ChatServer([refusal]) as server, pytest.raises(ModelUnavailable) as caught:
        Asked(server).model.ask(question())
    assert KEY[:12] not in str(caught.value)


def test_what_an_endpoint_writes_moves_no_cursor() -> None:
    refusal = Refuses(404, text="\x1b[2J\u202egone\x07")
    with ChatServer([refusal]) as server, pytest.raises(ModelUnavailable) as caught:
        Asked(server).model.ask(question())
    assert not set("\x1b\u202e\x07") & set(str(caught.value))
    assert "gone" in str(caught.value)


def test_half_a_character_can_be_kept() -> None:
    with ChatServer([Says("a \ud800 b")]) as server:
        reply = Asked(server).model.ask(question())
    assert Reply.model_validate_json(reply.model_dump_json()) == reply


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        (Says("a", prompt=10**30, completion=7), Usage(prompt=10**9, completion=7)),
        (Says("a", prompt=-5, completion=-7), Usage()),
        (Says("a", prompt=5, completion=1, cached=50), Usage(prompt=5, completion=1, cached=5)),
    ],
)
def test_tokens_are_counted_within_reason(said: Says, counted: Usage) -> None:
    """Budgets go by them: an endpoint must not be able to count backwards, nor past a database."""
    with ChatServer([said]) as server:
        assert Asked(server).model.ask(question()).usage == counted
