"""A coder that is a model drafts, fixes and fails over a real socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.agents.coder_factory import make_coder
from agentkernel.agents.model_coder import NO_CODE, SAME, ModelCoder
from agentkernel.agents.models.protocol import ChatOptions, packaged_options
from agentkernel.agents.models.provider import ModelProvider, make_model
from agentkernel.agents.protocols import Attempt
from agentkernel.agents.reviewer import Reviewer, Reviews
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import ModelUnavailable, SettingError
from agentkernel.storage.records import Records
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from tests.agents.models.chat_server import ChatServer, Cuts, Says
from tests.agents.models.model_cases import EXAMPLE, GOOD, refused_request, request
from tests.workflows.fakes import profile, verdict

NAME = "chat:openai:scripted"
QUICK = packaged_options().evolve(timeout_s=10.0, attempts=2, backoff_s=0.01, max_tokens=100)
OTHER = f"{GOOD}# another\n"
THIRD = f"{GOOD}# a third\n"


@pytest.fixture(scope="module")
def problem() -> LoadedProblem:
    return load_problem(str(EXAMPLE))


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def coder(server: ChatServer, options: ChatOptions = QUICK) -> ModelCoder:
    return ModelCoder(NAME, make_model(NAME, server.url, options), options.sampling())


def fenced(source: str) -> str:
    return f"Here:\n```python\n{source}```\n"


def drafted(source: str, round_number: int, strategy: str = "one row a program") -> Attempt:
    candidate = Candidate(source=source, coder=NAME, round=round_number, strategy=strategy)
    return Attempt(candidate=candidate)


def test_drafts_from_the_module(problem: LoadedProblem) -> None:
    with ChatServer([fenced(GOOD)]) as server:
        draft = coder(server).draft(problem, request())
    assert draft.candidate.source == GOOD
    assert (draft.candidate.coder, draft.candidate.parent) == (NAME, None)
    sent = str(server.requests[0]["messages"])
    assert "class Model(nn.Module)" in sent
    assert "Eight warps a row of 8192." in sent
    assert "one row a program" in sent
    assert server.requests[0]["model"] == "scripted"


def test_mends_with_the_verdict(problem: LoadedProblem) -> None:
    asked = refused_request()
    with ChatServer([fenced(OTHER)]) as server:
        draft = coder(server).draft(problem, asked)
    assert draft.candidate.parent == asked.history[0].candidate.sha256
    roles = [item["role"] for item in server.requests[0]["messages"]]  # type: ignore[attr-defined]
    assert roles == ["user", "assistant", "user"]
    sent = str(server.requests[0]["messages"])
    assert "is not defined" in sent
    assert "Import tl." in sent


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "first", ["I would rather not.", "", "It depends. " * 17_000, Cuts("```python\nclass ModelNew")]
)
def test_asks_once_more_where_no_file_came(problem: LoadedProblem, first: str | Cuts) -> None:
    with ChatServer([first, fenced(GOOD)]) as server:
        draft = coder(server).draft(problem, request())
    assert draft.candidate is not None
    assert len(server.requests) == 2
    (again,) = server.requests[1]["messages"]  # type: ignore[misc]
    assert "held no complete Python file" in again["content"]  # type: ignore[has-type]
    assert "It depends." not in again["content"]  # type: ignore[has-type]


def test_no_file_at_all_is_a_value(problem: LoadedProblem) -> None:
    with ChatServer(["No.", "Still no."]) as server:
        draft = coder(server).draft(problem, request())
    assert draft.candidate is None
    assert draft.none.reason == NO_CODE


def test_the_same_wrong_kernel_again_is_told_and_then_given_up(problem: LoadedProblem) -> None:
    with ChatServer([fenced(GOOD)], forever=True) as server:
        draft = coder(server).draft(problem, refused_request())
    assert draft.none.reason == SAME
    assert len(server.requests) == 2
    assert "you had given before" in str(server.requests[1]["messages"])


def test_the_first_sample_with_a_file_is_drafted_and_the_rest_are_kept(
    problem: LoadedProblem,
) -> None:
    options = QUICK.evolve(samples=4)
    answers = Says(texts=("No.", fenced(GOOD), fenced(OTHER), fenced(GOOD)))
    with ChatServer([answers, Says(texts=(fenced(THIRD),) * 4)]) as server:
        made = coder(server, options)
        first = made.draft(problem, request())
        history = (drafted(GOOD, 1, "two passes"),)
        second = made.draft(problem, request(round=2, history=history))
        assert len(server.requests) == 1
        history = (*history, drafted(OTHER, 2))
        third = made.draft(problem, request(round=3, history=history))
    assert [item.candidate.source for item in (first, second, third) if item.candidate] == [
        GOOD,
        OTHER,
        THIRD,
    ]
    assert second.candidate.strategy == "two passes"
    assert len(server.requests) == 2


def test_a_refusal_is_mended_though_other_samples_are_left(problem: LoadedProblem) -> None:
    options = QUICK.evolve(samples=2)
    answers = [Says(texts=(fenced(GOOD), fenced(OTHER))), Says(texts=(fenced(THIRD),) * 2)]
    with ChatServer([*answers]) as server:
        made = coder(server, options)
        made.draft(problem, request())
        mended = made.draft(problem, refused_request())
    assert mended.candidate.source == THIRD


def test_samples_outlive_the_process(problem: LoadedProblem, tmp_path: Path) -> None:
    options = QUICK.evolve(samples=2)
    records = Records(tmp_path / "run.sqlite")
    with ChatServer([Says(texts=(fenced(GOOD), fenced(OTHER)))]) as server:
        provider = ModelProvider(records, server.url, options)
        make_coder(NAME, NoSearch(), provider=provider).draft(problem, request())
        later = make_coder(NAME, NoSearch(), provider=provider)
        history = (drafted(GOOD, 1),)
        draft = later.draft(problem, request(round=2, history=history))
    assert draft.candidate.source == OTHER
    assert len(server.requests) == 1


def test_a_draft_that_was_not_kept_is_made_again_from_the_same_answer(
    problem: LoadedProblem, tmp_path: Path
) -> None:
    options = QUICK.evolve(samples=2)
    records = Records(tmp_path / "run.sqlite")
    with ChatServer([Says(texts=(fenced(GOOD), fenced(OTHER)))]) as server:
        provider = ModelProvider(records, server.url, options)
        first = make_coder(NAME, NoSearch(), provider=provider).draft(problem, request())
        again = make_coder(NAME, NoSearch(), provider=provider).draft(problem, request())
    assert again == first
    assert len(server.requests) == 1


def test_an_endpoint_that_is_gone(problem: LoadedProblem) -> None:
    with ChatServer([]) as server:
        gone = coder(server)
    with pytest.raises(ModelUnavailable, match="does not answer"):
        gone.draft(problem, request())


def verified() -> Attempt:
    candidate = Candidate(source=GOOD, coder="compiler", round=1, strategy="fused")
    return Attempt(candidate=candidate, verdict=verdict(candidate), profile=profile(candidate))


def test_an_endpoint_that_is_gone_later_is_asked_again_by_resume(problem: LoadedProblem) -> None:
    """A reason for no draft would be kept as the answer."""
    with ChatServer([]) as server:
        gone = coder(server)
    with pytest.raises(ModelUnavailable, match="does not answer"):
        gone.draft(problem, request(round=2, history=(verified(),)))


def test_a_review_of_the_best_file_is_shown(problem: LoadedProblem) -> None:
    review = "ANALYSIS\nThe row is read twice.\n\nESTIMATED_SPEEDUP\n1.5x\n"
    with ChatServer([review, fenced(OTHER), fenced(THIRD)]) as server:
        made = coder(server)
        made.reviews = Reviews(Reviewer(made.model, QUICK.sampling()))
        for number in (2, 3):
            made.draft(problem, request(round=number, history=(verified(),)))
        said = [str(item["messages"]) for item in server.requests]
    assert len(said) == 3
    assert all("The row is read twice." in text for text in said[1:])
    assert all("1.50x over that file" in text for text in said[1:])


class NoSearch:
    """A searcher that is never asked."""

    def rank(self, *_: object) -> tuple[()]:
        raise AssertionError("nothing to rank")


def test_factory_names_coders() -> None:
    made = make_coder("chat:openai:m@http://127.0.0.1:1/v1", NoSearch())  # type: ignore[arg-type]
    assert made.name == "chat:openai:m"
    with pytest.raises(SettingError, match="parrot"):
        make_coder("parrot", NoSearch())  # type: ignore[arg-type]
