from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.agents.debugger import RulesDebugger, best_fix_text, fixes_from, no_known_fixes
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.verdict import CompileFailed
from agentkernel.knowledge.base import KnowledgeBase, open_base
from tests.workflows.fakes import mismatch, verdict

LOG = (
    "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 300000, "
    "Hardware limit: 232448. Reducing block sizes or `num_stages` may help."
)
CANDIDATE = Candidate(source="class ModelNew: ...", coder="compiler", round=1, strategy="s")


@pytest.fixture
def base(tmp_path: Path) -> Iterator[KnowledgeBase]:
    with open_base(tmp_path) as opened:
        opened.refresh()
        yield opened


def failed(log: str) -> CompileFailed:
    return CompileFailed(log=log)


def test_the_fix_whose_line_stands_in_the_log_comes_first(base: KnowledgeBase) -> None:
    known = fixes_from(base)(failed(LOG))
    assert known[0].id == "fixes/shared_memory_limit"
    assert known[0].literal
    assert len(known) == 2


def test_a_failure_without_an_error_text_asks_nothing(base: KnowledgeBase) -> None:
    assert fixes_from(base)(mismatch()) == ()


def test_the_diagnosis_names_the_fix_and_its_advice(base: KnowledgeBase) -> None:
    judged = verdict(CANDIDATE, failed(LOG))
    plain = RulesDebugger().diagnose(CANDIDATE, judged, ())
    told = RulesDebugger(fixes_from(base)).diagnose(CANDIDATE, judged, ())
    assert plain.fixes == ()
    assert told.fixes[0] == "fixes/shared_memory_limit"
    assert told.advice.startswith(plain.advice)
    assert "fixes/shared_memory_limit" in told.advice
    assert (told.action, told.failure_class) == (plain.action, plain.failure_class)


def test_only_a_literal_fix_is_advice(base: KnowledgeBase) -> None:
    known = fixes_from(base)(failed("a strange error: frobnication failed"))
    assert known
    assert not any(item.literal for item in known)
    assert best_fix_text(known) == ""
    assert no_known_fixes(failed(LOG)) == ()
