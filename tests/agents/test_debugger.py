"""Diagnoses from the evidence, by rules or by a model within their limits."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from agentkernel.agents.debugger import (
    ModelDebugger,
    RulesDebugger,
    best_fix_text,
    fixes_from,
    no_known_fixes,
)
from agentkernel.agents.protocols import Attempt, Diagnosis
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.errors import ModelUnavailable
from agentkernel.domain.verdict import (
    NOT_JUDGED,
    CompileFailed,
    Failure,
    InputsChanged,
    LoadFailed,
    PolicyViolation,
    RunFailed,
    WrongMeta,
)
from agentkernel.knowledge.base import KnowledgeBase, open_base
from tests.agents.models.model_cases import (
    COMPILE_FAILED,
    SAMPLING,
    ScriptedModel,
    candidate,
    refused,
)
from tests.workflows.fakes import attempt, mismatch, verdict


def diagnose(failure: Failure, history: tuple[Attempt, ...] = (), strategy: str = "a") -> Diagnosis:
    candidate = Candidate(source="new", coder="scripted", round=1, strategy=strategy)
    return RulesDebugger().diagnose(candidate, verdict(candidate, failure), history)


def ran(reason: str, log: str = "Traceback\nValueError: x") -> RunFailed:
    return RunFailed.model_validate({"reason": reason, "log": log, "case": "primary"})


TABLE: list[tuple[Failure, str, str]] = [
    (CompileFailed(log="error: bad type", line=7), "compile", "repair"),
    (CompileFailed(log="out of resource: shared memory"), "resources", "repair"),
    (ran("raised"), "raised", "repair"),
    (ran("raised", "OutOfResources: out of resource: shared memory"), "resources", "repair"),
    (ran("out_of_bounds"), "out_of_bounds", "repair"),
    (ran("timeout"), "timeout", "repair"),
    (ran("memory"), "memory", "repair"),
    (ran("died"), "died", "next_hypothesis"),
    (mismatch("tail"), "mismatch:tail", "repair"),
    (mismatch("order"), "mismatch:order", "next_hypothesis"),
    (mismatch("nan"), "mismatch:nan", "repair"),
    (mismatch("all", norm_error=5e-6), "mismatch:precision", "repair"),
    (mismatch("all"), "mismatch:formula", "next_hypothesis"),
    (PolicyViolation(rule="no torch", line=3, text="torch.relu"), "policy", "repair"),
    (LoadFailed(log="KeyError"), "load", "repair"),
    (WrongMeta(case="c", output=0, expected="f32", found="f16"), "meta", "repair"),
    (InputsChanged(case="c", name="x"), "inputs", "repair"),
]


@pytest.mark.parametrize(("failure", "failure_class", "action"), TABLE)
def test_failure_classes(failure: Failure, failure_class: str, action: str) -> None:
    found = diagnose(failure)
    assert (found.failure_class, found.action) == (failure_class, action)
    assert found.advice
    assert found.evidence


def failed(name: str, failure: Failure, strategy: str) -> Attempt:
    made = attempt(name=name, failure=failure, profiled=False)
    return made.evolve(candidate=made.candidate.evolve(strategy=strategy))


def test_the_second_failure_of_a_class_changes_the_strategy() -> None:
    tail, nan = mismatch("tail"), mismatch("nan")
    assert diagnose(tail, (failed("1", tail, "a"),)).action == "next_hypothesis"
    assert diagnose(tail, (failed("1", nan, "a"),)).action == "repair"
    assert diagnose(tail, (failed("1", tail, "other"),)).action == "repair"


@pytest.mark.parametrize(("source", "told"), [("tl.exp(x - m)", True), ("tl.sqrt(x)", False)])
def test_a_maximum_before_exp_is_advice_for_what_has_an_exp(source: str, told: bool) -> None:
    made = Candidate(source=source, coder="compiler", round=1)
    found = RulesDebugger().diagnose(made, verdict(made, mismatch("nan")), ())
    assert found.failure_class == "mismatch:nan"
    assert ("before each exp" in found.advice) is told


def test_a_slow_machine_is_no_fault_of_the_kernel() -> None:
    made = Candidate(source="x", coder="compiler", round=1)
    log = f"{NOT_JUDGED}: the interpreter gave no answer within 120 s a call"
    late = RunFailed(reason="timeout", log=log, case="normal")
    judged = verdict(made, late)
    found = RulesDebugger().diagnose(made, judged, ())
    assert found.advice.startswith("Nothing is known against it")
    assert judged.answer == log


def test_one_class_under_three_strategies_is_given_up() -> None:
    tail = mismatch("tail")
    history = (failed("1", tail, "a"), failed("2", tail, "b"))
    assert diagnose(tail, history, "c").action == "give_up"
    assert diagnose(tail, (attempt(name="right"), *history), "c").action == "repair"


def test_the_attempt_itself_does_not_count_as_history() -> None:
    tail = mismatch("tail")
    itself = failed("new", tail, "a")
    assert diagnose(tail, (itself,)).action == "repair"


@pytest.mark.parametrize("coder", ["chat:openai:small", "local:small"])
def test_a_model_may_rewrite_a_wrong_formula_once(coder: str) -> None:
    formula, order = mismatch("all"), mismatch("order")
    asked = {"coder": coder, "round": 1, "strategy": "a"}
    first = Candidate.model_validate({"source": "first", **asked})
    again = Candidate.model_validate({"source": "again", **asked})
    debugger = RulesDebugger()
    for failure in (formula, order):
        told = debugger.diagnose(first, verdict(first, failure), ())
        assert told.action == "repair"
        assert "another strategy" not in told.advice
        earlier = (Attempt(candidate=first, verdict=verdict(first, failure)),)
        found = debugger.diagnose(again, verdict(again, failure), earlier)
        assert found.action == "next_hypothesis"
    died = debugger.diagnose(first, verdict(first, ran("died")), ())
    assert died.action == "next_hypothesis"


def test_the_broken_rule_and_its_line_are_told() -> None:
    log = "at 1:0:\nnew\n^\narange's range must be a power of 2"
    found = diagnose(CompileFailed(log=log))
    assert found.line == 1
    assert found.advice.startswith("The length of tl.arange")
    assert found.advice.endswith("take the next schedule.")


def finding(action: str = "repair", line: int | None = None, edit: str = "") -> str:
    return json.dumps(
        {"cause": "The range.", "line": line, "action": action, "advice": "Use 128.", "edit": edit}
    )


def asked(
    answers: list[str | ModelUnavailable],
    failure: Failure = COMPILE_FAILED,
    history: tuple[Attempt, ...] = (),
) -> tuple[Diagnosis, ScriptedModel]:
    model, made = ScriptedModel(answers), candidate(source="import torch\n\n\nx = 1\n")
    debugger = ModelDebugger(model, RulesDebugger(), SAMPLING)
    return debugger.diagnose(made, verdict(made, failure), history), model


def test_the_models_words_and_edit() -> None:
    found, model = asked([finding(edit="100 -> 128")])
    assert (found.advice, found.edit) == ("The range. Use 128.", "100 -> 128")
    assert (found.failure_class, found.action, found.by) == ("compile", "repair", model.name)
    assert (model.questions[0].agent, model.questions[0].round) == ("debugger", 1)


def test_evidence_and_the_rules_are_in_the_question() -> None:
    _, model = asked([finding()])
    assert "arange's range must be a power of 2" in model.heard
    assert "- class: compile" in model.heard
    assert "- next: repair" in model.heard


@pytest.mark.parametrize("action", ["repair", "next_hypothesis", "give_up"])
def test_the_action_may_be_stricter(action: str) -> None:
    assert asked([finding(action)])[0].action == action


def test_the_action_is_never_milder() -> None:
    died = RunFailed(reason="died", log="", case="c")
    assert asked([finding("repair")], died)[0].action == "next_hypothesis"


def test_the_second_failure_of_a_class_changes_the_strategy_of_a_model() -> None:
    found, model = asked([finding("repair")], history=(refused(),))
    assert found.action == "next_hypothesis"
    assert "- next: next_hypothesis" in model.heard


def test_one_class_under_three_strategies_is_given_up_unasked() -> None:
    history = (refused(strategy="a", source="a"), refused(strategy="b", source="b"))
    model, made = ScriptedModel([]), candidate().evolve(coder="compiler")
    debugger = ModelDebugger(model, RulesDebugger(), SAMPLING)
    found = debugger.diagnose(made, verdict(made, COMPILE_FAILED), history)
    assert found.action == "give_up"
    assert model.questions == []
    found, _ = asked([finding()], history=history)
    assert found.action == "repair", "a model's next draft may avoid it"


def test_a_line_that_is_not_there_is_dropped() -> None:
    assert asked([finding(line=4)], mismatch())[0].line == 4
    assert asked([finding(line=400)], mismatch())[0].line is None


def test_the_evidences_line_goes_first() -> None:
    made = candidate()
    model = ScriptedModel([finding(line=2)])
    debugger = ModelDebugger(model, RulesDebugger(), SAMPLING)
    assert debugger.diagnose(made, verdict(made, COMPILE_FAILED), ()).line == 11


@pytest.mark.parametrize("answers", [["No.", "{}"], [ModelUnavailable("gone")]])
def test_without_an_answer_the_rules_diagnose(answers: list[str | ModelUnavailable]) -> None:
    found, _ = asked(answers)
    assert (found.action, found.by) == ("repair", "")
    assert "power of two" in found.advice


MEMORY_LOG = (
    "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 300000, "
    "Hardware limit: 232448. Reducing block sizes or `num_stages` may help."
)
CANDIDATE = Candidate(source="class ModelNew: ...", coder="compiler", round=1, strategy="s")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KnowledgeBase]:
    with open_base(tmp_path_factory.mktemp("knowledge")) as opened:
        opened.refresh()
        yield opened


def test_the_fix_whose_line_stands_in_the_log_comes_first(base: KnowledgeBase) -> None:
    known = fixes_from(base)(CompileFailed(log=MEMORY_LOG))
    assert known[0].id == "fixes/shared_memory_limit"
    assert known[0].literal
    assert len(known) == 2


def test_a_failure_without_an_error_text_asks_nothing(base: KnowledgeBase) -> None:
    assert fixes_from(base)(mismatch()) == ()


def test_the_diagnosis_names_the_fix_and_its_advice(base: KnowledgeBase) -> None:
    judged = verdict(CANDIDATE, CompileFailed(log=MEMORY_LOG))
    plain = RulesDebugger().diagnose(CANDIDATE, judged, ())
    told = RulesDebugger(fixes_from(base)).diagnose(CANDIDATE, judged, ())
    assert plain.fixes == ()
    assert told.fixes[0] == "fixes/shared_memory_limit"
    assert told.advice.startswith(plain.advice)
    assert "fixes/shared_memory_limit" in told.advice
    assert (told.action, told.failure_class) == (plain.action, plain.failure_class)


def test_only_a_literal_fix_is_advice(base: KnowledgeBase) -> None:
    known = fixes_from(base)(CompileFailed(log="a strange error: frobnication failed"))
    assert known
    assert not any(item.literal for item in known)
    assert best_fix_text(known) == ""
    assert no_known_fixes(CompileFailed(log=MEMORY_LOG)) == ()
