"""Does a model's diagnosis stay within what the evidence and the rules allow?"""

from __future__ import annotations

import json

import pytest

from agentkernel.agents.debugger import ModelDebugger, RulesDebugger
from agentkernel.agents.protocols import Attempt, Diagnosis
from agentkernel.domain.errors import ModelUnavailable
from agentkernel.domain.verdict import Failure, RunFailed
from tests.agents.models.model_cases import (
    COMPILE_FAILED,
    SAMPLING,
    ScriptedModel,
    candidate,
    refused,
)
from tests.workflows.fakes import mismatch, verdict


def finding(action: str = "repair", line: int | None = None, edit: str = "") -> str:
    return json.dumps(
        {"cause": "The range.", "line": line, "action": action, "advice": "Use 128.", "edit": edit}
    )


def diagnose(
    answers: list[str | ModelUnavailable],
    failure: Failure = COMPILE_FAILED,
    history: tuple[Attempt, ...] = (),
) -> tuple[Diagnosis, ScriptedModel]:
    model, made = ScriptedModel(answers), candidate(source="import torch\n\n\nx = 1\n")
    debugger = ModelDebugger(model, RulesDebugger(), SAMPLING)
    return debugger.diagnose(made, verdict(made, failure), history), model


def test_the_models_words_and_edit() -> None:
    found, model = diagnose([finding(edit="100 -> 128")])
    assert found.advice == "The range. Use 128."
    assert found.edit == "100 -> 128"
    assert (found.failure_class, found.action, found.by) == ("compile", "repair", model.name)
    assert (model.questions[0].agent, model.questions[0].round) == ("debugger", 1)


def test_evidence_and_the_rules_are_in_the_question() -> None:
    _, model = diagnose([finding()])
    assert "arange's range must be a power of 2" in model.heard
    assert "- class: compile" in model.heard
    assert "- next: repair" in model.heard


@pytest.mark.parametrize("action", ["repair", "next_hypothesis", "give_up"])
def test_the_action_may_be_stricter(action: str) -> None:
    assert diagnose([finding(action)])[0].action == action


def test_the_action_is_never_milder() -> None:
    died = RunFailed(reason="died", log="", case="c")
    assert diagnose([finding("repair")], died)[0].action == "next_hypothesis"


def test_the_second_failure_of_a_class_changes_the_strategy() -> None:
    found, model = diagnose([finding("repair")], history=(refused(),))
    assert found.action == "next_hypothesis"
    assert "- next: next_hypothesis" in model.heard


def test_one_class_under_three_strategies_is_given_up_unasked() -> None:
    history = (refused(strategy="a", source="a"), refused(strategy="b", source="b"))
    model, made = ScriptedModel([]), candidate().evolve(coder="compiler")
    debugger = ModelDebugger(model, RulesDebugger(), SAMPLING)
    found = debugger.diagnose(made, verdict(made, COMPILE_FAILED), history)
    assert found.action == "give_up"
    assert model.questions == []
    asked, _ = diagnose([finding()], history=history)
    assert asked.action == "repair", "a model's next draft may avoid it"


def test_a_line_that_is_not_there_is_dropped() -> None:
    assert diagnose([finding(line=4)], mismatch())[0].line == 4
    assert diagnose([finding(line=400)], mismatch())[0].line is None


def test_the_evidences_line_goes_first() -> None:
    made = candidate()
    model = ScriptedModel([finding(line=2)])
    debugger = ModelDebugger(model, RulesDebugger(), SAMPLING)
    assert debugger.diagnose(made, verdict(made, COMPILE_FAILED), ()).line == 11


@pytest.mark.parametrize("answers", [["No.", "{}"], [ModelUnavailable("gone")]])
def test_without_an_answer_the_rules_diagnose(answers: list[str | ModelUnavailable]) -> None:
    found, _ = diagnose(answers)
    assert (found.action, found.by) == ("repair", "")
    assert "power of two" in found.advice
