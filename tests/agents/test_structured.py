"""Answers become typed values, however they are wrapped, and are asked for once more."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.agents.answers import (
    NotStructured,
    answer_schema,
    ask_structured,
    read_reply,
    read_text,
)
from agentkernel.agents.planner import Idea, Ideas
from agentkernel.domain.errors import ModelUnavailable
from agentkernel.domain.exchange import Message, ModelRequest, Reply
from tests.agents.models.model_cases import SAMPLING, ScriptedModel

QUESTION = ModelRequest(
    agent="planner", round=1, messages=(Message(role="user", text="Plan."),), sampling=SAMPLING
)
IDEA = {"strategy": "tiled", "reason": "fits", "predicted_us": 3.5}
JSON = json.dumps({"hypotheses": [IDEA]})
WANTED = Ideas(hypotheses=(Idea(strategy="tiled", reason="fits", predicted_us=3.5),))


@pytest.mark.parametrize(
    "text",
    [
        JSON,
        f"```json\n{JSON}\n```",
        f"Here is my plan, as {{asked}}:\n{JSON}\nGood luck!",
        f'<think>{{"hypotheses": []}}</think>{JSON}',
        f"thinking</think>{JSON}",
        f'{{"hypotheses": "none yet"}}\nNo, rather:\n{JSON}',
        json.dumps({"hypotheses": [{**IDEA, "mood": "good"}], "note": "x"}),
        JSON.replace("fits", "fi\nts").replace("fi\nts", "fits"),
    ],
)
def test_json_is_found(text: str) -> None:
    assert read_text(text, Ideas) == WANTED


def test_braces_before_the_answer_do_not_hide_it() -> None:
    assert read_text('f{x} {"y} ' * 2_000 + JSON, Ideas) == WANTED


def test_the_schema_goes_with_the_question() -> None:
    model = ScriptedModel([JSON])
    assert ask_structured(model, QUESTION, Ideas) == WANTED
    (asked,) = model.questions
    assert asked.answer_schema == answer_schema(Ideas)
    assert asked.messages == QUESTION.messages


def test_the_schema_requires_all_and_allows_no_more() -> None:
    schema = json.loads(answer_schema(Ideas))
    idea = schema["$defs"]["Idea"]
    assert idea["required"] == sorted(idea["properties"])
    assert idea["additionalProperties"] is False
    assert "default" not in json.dumps(schema)


def test_a_repair_round_names_the_errors() -> None:
    model = ScriptedModel(['{"hypotheses": [{"strategy": 3}]}', JSON])
    assert ask_structured(model, QUESTION, Ideas) == WANTED
    roles = [item.role for item in model.questions[1].messages]
    assert roles == ["user", "assistant", "user"]
    assert "hypotheses.0.strategy" in model.heard
    assert "hypotheses.0.reason: Field required" in model.heard
    assert "cut off" not in model.heard


def test_a_cut_answer_is_told_to_be_shorter() -> None:
    model = ScriptedModel([JSON[:20], JSON], finish="length")
    assert ask_structured(model, QUESTION, Ideas) == WANTED
    assert "cut off" in model.heard


@pytest.mark.parametrize("second", ["", "{}", "[]", "null", "I will not.", '{"hypotheses": []}'])
def test_after_one_repair_it_is_a_value(second: str) -> None:
    model = ScriptedModel(["prose", second])
    found = ask_structured(model, QUESTION, Ideas)
    assert isinstance(found, NotStructured)
    assert found.reason
    assert found.text == second
    assert model.answers == []


def test_an_empty_answer_is_repaired_without_an_empty_turn() -> None:
    model = ScriptedModel(["", JSON])
    assert ask_structured(model, QUESTION, Ideas) == WANTED
    assert all(item.text for item in model.questions[1].messages)


def test_a_long_answer_is_not_sent_back_whole() -> None:
    model = ScriptedModel(["x" * 200_000, JSON])
    assert ask_structured(model, QUESTION, Ideas) == WANTED
    assert sum(len(item.text) for item in model.questions[1].messages) < 10_000


def test_any_sample_that_reads_will_do() -> None:
    assert read_reply(Reply(texts=("no", JSON), finish=("stop", "stop")), Ideas) == WANTED
    assert isinstance(read_reply(Reply(texts=(), finish=()), Ideas), NotStructured)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1", "0", '"soon"'])
def test_times_that_are_none_are_refused(value: str) -> None:
    assert isinstance(read_text(JSON.replace("3.5", value), Ideas), NotStructured)


def test_an_unreachable_model_is_no_answer() -> None:
    with pytest.raises(ModelUnavailable):
        ask_structured(ScriptedModel([ModelUnavailable("gone")]), QUESTION, Ideas)


@given(st.text() | st.text(alphabet='{}[]":,0\\n', max_size=200))
def test_nothing_that_is_said_raises(text: str) -> None:
    assert isinstance(read_text(text, Ideas), NotStructured | Ideas)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "text", ['{"a":' * 50_000, "[" * 100_000, "{" * 200_000, '{"' * 200_000, '{"a":[' * 9_000]
)
def test_deep_nesting_is_no_crash(text: str) -> None:
    begin = time.monotonic()
    assert isinstance(read_text(text, Ideas), NotStructured)
    assert time.monotonic() - begin < 5
