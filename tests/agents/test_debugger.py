from __future__ import annotations

import pytest

from agentkernel.agents.debugger import RulesDebugger
from agentkernel.agents.protocols import Attempt, Diagnosis
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.verdict import (
    CompileFailed,
    Failure,
    InputsChanged,
    LoadFailed,
    PolicyViolation,
    RunFailed,
    WrongMeta,
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
