"""A model of `agentkernel train` is asked in the words of its rows."""

from __future__ import annotations

from agentkernel.agents.answers import extract_module
from agentkernel.agents.conversation import MOST_FACTS, coder_messages, completion
from agentkernel.agents.protocols import Attempt
from agentkernel.domain.candidate import Candidate
from agentkernel.tools.problem.loading import load_problem
from tests.agents.models.model_cases import EXAMPLE, GOOD, refused_request, request
from tests.workflows.fakes import profile, verdict


def test_a_first_draft_is_asked_with_the_module_alone() -> None:
    (turn,) = coder_messages(load_problem(str(EXAMPLE)), request(), "taught")
    assert turn.role == "user"
    assert "class Model(nn.Module)" in turn.text
    assert "Eight warps" not in turn.text
    assert len(turn.text) < 1500


def test_a_refused_file_is_the_model_s_own_turn_and_the_verdict_the_last() -> None:
    asked = refused_request()
    turns = coder_messages(load_problem(str(EXAMPLE)), asked, "taught")
    assert [turn.role for turn in turns] == ["user", "assistant", "user"]
    assert extract_module(turns[1].text) == asked.history[0].candidate.source
    assert "is not defined" in turns[2].text
    assert turns[2].text.count("\n- ") <= MOST_FACTS


def test_a_right_file_is_shown_with_its_time_to_be_made_faster() -> None:
    candidate = Candidate(source=GOOD, coder="local:x", round=1)
    right = Attempt(candidate=candidate, verdict=verdict(candidate), profile=profile(candidate))
    asked = request(history=(right,), round=2)
    turns = coder_messages(load_problem(str(EXAMPLE)), asked, "taught")
    assert [turn.role for turn in turns] == ["user", "assistant", "user"]
    assert extract_module(turns[1].text) == GOOD
    assert "bound by" in turns[2].text


def test_what_is_taught_is_what_is_read() -> None:
    assert extract_module(completion("Bound by memory: one pass.", GOOD)) == GOOD
    assert extract_module(completion("", GOOD)) == GOOD
