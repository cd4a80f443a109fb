"""Prompts against golden files; none is filled in half."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest

from agentkernel.agents.conversation import coder_messages
from agentkernel.agents.debugger import ModelDebugger, RulesDebugger
from agentkernel.agents.planner import ModelPlanner, RulesPlanner
from agentkernel.agents.prompts import render
from agentkernel.agents.protocols import Diagnosis, Goals, PlanRequest
from agentkernel.agents.reviewer import Review, Reviewer
from agentkernel.domain.plan import Hypothesis
from agentkernel.tools.problem.loading import load_problem
from tests.agents.models.model_cases import (
    EXAMPLE,
    H100,
    SAMPLING,
    ScriptedModel,
    analysis,
    note,
    refused,
    request,
    right,
)
from tests.workflows.fakes import mismatch

GOLDEN = Path(__file__).parents[2] / "golden" / "prompts"
TOLD = Diagnosis(failure_class="compile", evidence="line 11", action="repair", advice="Round up.")
OFFERED = (Hypothesis(strategy="one row a program", reason="each row once", predicted_us=178.0),)


def check(name: str, text: str) -> None:
    """Compare with the golden file; delete the file to have it written anew."""
    path = GOLDEN / name
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        pytest.fail(f"{path} was missing and has been written: read it and run again")
    assert text == path.read_text()


def test_coder() -> None:
    (message,) = coder_messages(load_problem(str(EXAMPLE)), request())
    assert message.role == "user"
    check("coder.md", message.text)


def test_coder_with_a_best_file() -> None:
    messages = coder_messages(load_problem(str(EXAMPLE)), request((right(), refused())))
    assert [item.role for item in messages] == ["user"]
    check("coder_best.md", messages[0].text)


def test_coder_with_a_reviewed_file() -> None:
    review = Review(
        analysis="The row is read twice.",
        optimizations=("Keep the row in registers.", "Use 8 warps a row."),
        estimated_speedup=1.4,
        by="chat:openai:critic",
    )
    asked = request((right(),), parent=right())
    (message,) = coder_messages(load_problem(str(EXAMPLE)), asked, "coder", review)
    check("coder_reviewed.md", message.text)


def test_debugger_after_a_compile_error() -> None:
    messages = coder_messages(load_problem(str(EXAMPLE)), request((refused(),), TOLD))
    assert [item.role for item in messages] == ["user", "assistant", "user"]
    check("debugger.md", messages[-1].text)


def test_debugger_after_wrong_values() -> None:
    found = TOLD.evolve(edit="<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE")
    history = (refused(mismatch("tail").evolve(first_index=(0, 128))),)
    messages = coder_messages(load_problem(str(EXAMPLE)), request(history, found))
    check("debugger_values.md", messages[-1].text)


def test_diagnosis() -> None:
    model = ScriptedModel(["", ""])
    last = refused(source="# other\n")
    assert last.verdict is not None
    ModelDebugger(model, RulesDebugger(), SAMPLING).diagnose(
        last.candidate, last.verdict, (refused(mismatch()), last)
    )
    check("diagnosis.md", model.questions[0].messages[0].text)
    check("repair_json.md", model.heard)


def test_planner() -> None:
    model = ScriptedModel(["", ""])
    planner = ModelPlanner(model, RulesPlanner(lambda *_: OFFERED), SAMPLING)
    history = (right(strategy="two passes"), refused(strategy="tiled", source="# tiled\n"))
    problem = load_problem(str(EXAMPLE))
    planner.plan(PlanRequest(problem, analysis(), H100, Goals(), history, (note(),)))
    check("planner.md", model.questions[0].messages[0].text)


def test_reviewer() -> None:
    model = ScriptedModel(["ANALYSIS\nok"])
    best = right()
    assert best.profile is not None
    Reviewer(model, SAMPLING).review(best.candidate, best.profile, analysis(), H100)
    check("reviewer.md", model.heard)


def test_a_missing_value_raises() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render("coder", problem=load_problem(str(EXAMPLE)).problem)
