"""Does the chat coder draft, mend and fail as it should, over a real client and a real socket?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from chat_cases import EXAMPLE, GOOD, draft_request, refused_request
from chat_server import ChatServer

from agentkernel.agents.coders.chat import ChatCoder, ChatOptions, parse_model, redact
from agentkernel.agents.coders.factory import make_coder
from agentkernel.errors import ModelUnavailable, SettingError
from agentkernel.tools.problems import LoadedProblem, load_problem

QUICK = ChatOptions(temperature=0.0, timeout_s=10, max_retries=0, max_tokens=100)


@pytest.fixture(scope="module")
def problem() -> LoadedProblem:
    return load_problem(str(EXAMPLE))


def coder(server: ChatServer) -> ChatCoder:
    return ChatCoder("openai:scripted", server.url, QUICK)


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def test_drafts_from_the_module(problem: LoadedProblem) -> None:
    with ChatServer([f"Here:\n```python\n{GOOD}```\n"]) as server:
        draft = coder(server).draft(problem, draft_request())
    assert draft.candidate is not None
    assert draft.candidate.source == GOOD
    assert (draft.candidate.coder, draft.candidate.parent) == ("chat:openai:scripted", None)
    sent = str(server.requests[0]["messages"])
    assert "class Model(nn.Module)" in sent
    assert "Eight warps a row of 8192." in sent
    assert "one row a program" in sent
    assert server.requests[0]["model"] == "scripted"


def test_mends_with_the_verdict(problem: LoadedProblem) -> None:
    request = refused_request()
    with ChatServer([f"```python\n{GOOD}# mended\n```"]) as server:
        draft = coder(server).draft(problem, request)
    assert draft.candidate is not None
    assert draft.candidate.parent == request.history[0].candidate.sha256
    roles = [item["role"] for item in server.requests[0]["messages"]]  # type: ignore[attr-defined]
    assert roles == ["user", "assistant", "user"]
    sent = str(server.requests[0]["messages"])
    assert "is not defined" in sent
    assert "Import tl." in sent


def test_asks_once_more_where_no_code_came(problem: LoadedProblem) -> None:
    with ChatServer(["I would rather not.", f"```python\n{GOOD}```"]) as server:
        draft = coder(server).draft(problem, draft_request())
    assert draft.candidate is not None
    assert len(server.requests) == 2


def test_no_code_at_all_is_a_value(problem: LoadedProblem) -> None:
    with ChatServer(["No.", "Still no."]) as server:
        draft = coder(server).draft(problem, draft_request())
    assert draft.candidate is None
    assert draft.none is not None
    assert "ModelNew" in draft.none.reason


def test_the_key_is_sent_and_never_shown(
    problem: LoadedProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-loopback-secret")
    with ChatServer([401]) as server, pytest.raises(ModelUnavailable) as caught:
        coder(server).draft(problem, draft_request())
    assert server.authorizations == ["Bearer sk-loopback-secret"]
    assert "sk-loopback-secret" not in str(caught.value)
    assert "<OPENAI_API_KEY>" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nobody_listens(problem: LoadedProblem) -> None:
    with ChatServer([]) as server:
        gone = coder(server)
    with pytest.raises(ModelUnavailable, match="does not answer"):
        gone.draft(problem, draft_request())


def test_without_key_or_endpoint(problem: LoadedProblem) -> None:
    with pytest.raises(ModelUnavailable, match="OPENAI_API_KEY"):
        ChatCoder("openai:gpt-5", None, QUICK).draft(problem, draft_request())


def test_unknown_provider(problem: LoadedProblem) -> None:
    with pytest.raises(ModelUnavailable, match="parrot"):
        ChatCoder("parrot:polly", None, QUICK).draft(problem, draft_request())


def test_model_names() -> None:
    assert parse_model("openai:gpt-5") == ("openai:gpt-5", None)
    assert parse_model("openai:m@http://localhost:8000/v1") == (
        "openai:m",
        "http://localhost:8000/v1",
    )
    with pytest.raises(SettingError, match="names no model"):
        parse_model("openai")


def test_secrets_are_cut_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "abcdefgh")
    assert redact("key abcdefgh refused") == "key <SOME_API_KEY> refused"


class NoSearch:
    """A searcher that is never asked."""

    def rank(self, *_: object) -> tuple[()]:
        raise AssertionError("nothing to rank")


def test_factory_names_coders() -> None:
    made = make_coder("chat:openai:m@http://localhost:1/v1", NoSearch())  # type: ignore[arg-type]
    assert made.name == "chat:openai:m"
    with pytest.raises(SettingError, match="parrot"):
        make_coder("parrot", NoSearch())  # type: ignore[arg-type]
