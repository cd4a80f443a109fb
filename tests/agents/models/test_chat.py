"""Questions to a model at an endpoint, over a real client and a real socket."""

from __future__ import annotations

import json

import pytest

from tests.agents.models.endpoint_cases import SCHEMA, options, question

# isort: split
from agentkernel.agents.models.chat import ChatModel
from agentkernel.agents.models.protocol import ChatOptions
from agentkernel.domain.errors import ModelUnavailable
from agentkernel.domain.exchange import Usage
from tests.agents.models.chat_server import ChatServer, Refuses, Says

NAME = "chat:openai:scripted"


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def model(server: ChatServer, chosen: ChatOptions | None = None) -> ChatModel:
    return ChatModel(NAME, server.url, chosen or options())


def test_an_answer_comes_in_pieces_with_its_tokens() -> None:
    text = "one row a program, " * 20
    pieces: list[str] = []
    with ChatServer([Says(text, cached=60)]) as server:
        reply = model(server).ask(question(), pieces.append)
    assert (reply.texts, reply.finish) == ((text,), ("stop",))
    assert reply.usage == Usage(prompt=100, completion=20, cached=60)
    assert "".join(pieces) == text
    assert len(pieces) > 5
    assert all(pieces)
    assert reply.seconds > 0


def test_the_request_says_what_the_question_says() -> None:
    with ChatServer(["Done."]) as server:
        model(server).ask(question(top_p=0.9, stop=("END",), seed=7))
    sent = server.requests[0]
    assert sent["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Write a kernel."},
    ]
    wanted = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 64, "stop": ["END"], "seed": 7}
    assert {key: sent[key] for key in wanted} == wanted
    assert sent["stream_options"] == {"include_usage": True}


def test_the_limit_has_another_name_at_some_endpoints() -> None:
    with ChatServer(["Done."]) as server:
        model(server, options(limit_field="max_completion_tokens")).ask(question())
    assert server.requests[0]["max_completion_tokens"] == 64
    assert "max_tokens" not in server.requests[0]


def test_samples_come_with_one_request_and_are_counted_once() -> None:
    with ChatServer([Says(texts=("a", "b", "c"), completion=30)]) as server:
        reply = model(server).ask(question(samples=3))
    assert (reply.texts, reply.finish) == (("a", "b", "c"), ("stop",) * 3)
    assert reply.usage == Usage(prompt=100, completion=30)
    assert (reply.attempts, server.requests[0]["n"]) == (1, 3)


def test_an_endpoint_that_knows_no_n_is_asked_for_each_sample() -> None:
    with ChatServer(["a", "b", "c"]) as server:
        reply = model(server).ask(question(samples=3, seed=5))
    assert reply.texts == ("a", "b", "c")
    assert reply.usage == Usage(prompt=300, completion=60)
    assert reply.attempts == 3
    assert [item["seed"] for item in server.requests] == [5, 6, 7]


def test_a_limit_reached_is_told() -> None:
    with ChatServer([Says("class Mod", finish="length")]) as server:
        reply = model(server).ask(question())
    assert (reply.texts, reply.finish) == (("class Mod",), ("length",))


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_a_schema_is_sent_as_response_format(finish: str) -> None:
    with ChatServer([Says('{"steps": 2}', finish=finish)]) as server:
        reply = model(server).ask(question(answer_schema=SCHEMA))
    assert (reply.texts, reply.finish) == (('{"steps": 2}',), (finish,))
    assert reply.usage == Usage(prompt=100, completion=20)
    form = server.requests[0]["response_format"]
    assert form["type"] == "json_schema"  # type: ignore[index]
    assert form["json_schema"]["schema"] == json.loads(SCHEMA)  # type: ignore[index]


@pytest.mark.parametrize("samples", [1, 2])
def test_a_schema_as_a_tool_gives_its_arguments(samples: int) -> None:
    answers = Says('{"steps": 2}', texts=('{"steps": 2}',) * samples, tool=True)
    with ChatServer([answers]) as server:
        chosen = options(structured="tool")
        reply = model(server, chosen).ask(question(answer_schema=SCHEMA, samples=samples))
    assert (reply.texts, reply.finish) == (('{"steps": 2}',) * samples, ("stop",) * samples)
    (tool,) = server.requests[0]["tools"]  # type: ignore[misc]
    assert tool["function"]["parameters"]["properties"] == json.loads(SCHEMA)["properties"]  # type: ignore[has-type]
    assert "answer" in str(server.requests[0]["tool_choice"])


def test_an_endpoint_without_schemas_is_asked_in_words_from_then_on() -> None:
    refusal = Refuses(400, text="response_format is not supported")
    with ChatServer([refusal, '{"steps": 2}', '{"steps": 3}']) as server:
        asked = model(server)
        first = asked.ask(question(answer_schema=SCHEMA))
        asked.ask(question("And now?", answer_schema=SCHEMA))
    assert first.texts == ('{"steps": 2}',)
    assert ["response_format" in item for item in server.requests] == [True, False, False]
    assert SCHEMA in str(server.requests[1]["messages"][-1]["content"])  # type: ignore[index]


@pytest.mark.parametrize(
    ("objection", "gone", "there"),
    [
        ("Unsupported parameter: stream_options", {"stream_options"}, {"stream"}),
        ("use max_completion_tokens instead", {"max_tokens"}, {"max_completion_tokens"}),
        ("temperature may only be 1", {"temperature", "top_p"}, {"max_tokens"}),
    ],
)
def test_what_an_endpoint_objects_to_by_name_is_left_out(
    objection: str, gone: set[str], there: set[str]
) -> None:
    with ChatServer([Refuses(400, text=objection), "Done.", "And done."]) as server:
        asked = model(server)
        assert asked.ask(question(top_p=0.9)).attempts == 2
        asked.ask(question(top_p=0.9))
    for sent in server.requests[1:]:
        assert not gone & set(sent)
        assert there <= set(sent)


def test_an_objection_that_nothing_meets_ends_the_question() -> None:
    refusal = Refuses(400, text="temperature may only be 1")
    with ChatServer([refusal], forever=True) as server, pytest.raises(ModelUnavailable):
        model(server).ask(question())
    assert len(server.requests) == 2


def test_invalid_json_is_for_the_agent_to_repair() -> None:
    with ChatServer(['{"steps": ']) as server:
        reply = model(server).ask(question(answer_schema=SCHEMA))
    assert (reply.texts, reply.finish) == (('{"steps": ',), ("stop",))


def test_without_key_or_endpoint() -> None:
    with pytest.raises(ModelUnavailable, match="OPENAI_API_KEY"):
        ChatModel("chat:openai:gpt-5", None, options()).ask(question())


def test_unknown_provider() -> None:
    with pytest.raises(ModelUnavailable, match="parrot"):
        ChatModel("chat:parrot:polly", None, options()).ask(question())
