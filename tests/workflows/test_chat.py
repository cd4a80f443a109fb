"""Does a conversation keep a tree of runs that can be walked back and kept?"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from scripted_runs import ScriptedRuns

from agentkernel.domain.settings import Settings
from agentkernel.tools.problems import load_problem
from agentkernel.tools.settings import load_settings
from agentkernel.workflows.chat import Conversation
from agentkernel.workflows.events import ignore

EXAMPLE = Path(__file__).parents[2] / "examples" / "softmax.py"


def settings_for(changes: Mapping[str, object]) -> Settings:
    return load_settings(None, (), changes)


@pytest.fixture
def problem_file(tmp_path: Path) -> Path:
    path = tmp_path / "softmax.py"
    path.write_text(EXAMPLE.read_text())
    return path


@pytest.fixture
def runs(tmp_path: Path) -> ScriptedRuns:
    return ScriptedRuns(tmp_path)


@pytest.fixture
def talk(problem_file: Path, runs: ScriptedRuns, tmp_path: Path) -> Conversation:
    problem = load_problem(str(problem_file))
    return Conversation(problem, settings_for, runs.start, ignore, tmp_path / ".chat")


def test_changes_add_up_along_the_thread(talk: Conversation, runs: ScriptedRuns) -> None:
    talk.answer("target h200")
    talk.answer("precision bf16")
    last = runs.started[-1].settings
    assert (last.target, last.goals.precision) == ("h200", "bf16")
    assert "parent=run1" in runs.started[-1].flags


def test_undo_goes_to_the_parent_and_branches(talk: Conversation, runs: ScriptedRuns) -> None:
    talk.answer("target h200")
    talk.answer("precision bf16")
    assert "step 1" in talk.answer("undo").text
    talk.answer("precision tf32")
    assert [(step.id, step.parent) for step in talk.thread.steps] == [(1, None), (2, 1), (3, 1)]
    assert runs.started[-1].settings.target == "h200"
    talk.answer("undo")
    talk.answer("undo")
    assert talk.step is None
    assert talk.answer("undo").text == "Nothing to undo."


def test_again_is_another_seed_with_more_rounds(talk: Conversation, runs: ScriptedRuns) -> None:
    talk.answer("go")
    talk.answer("again")
    first, second = (item.settings for item in runs.started)
    assert second.seed == first.seed + 1
    assert second.budget.rounds > first.budget.rounds


def test_diff_against_the_parent(talk: Conversation) -> None:
    talk.answer("target h200")
    assert "-class Model(nn.Module):" in talk.answer("diff").text
    talk.answer("precision bf16")
    shown = talk.answer("diff").text
    assert "-# h200 strict" in shown
    assert "+# h200 bf16" in shown


def test_keep_writes_beside_the_module(talk: Conversation, problem_file: Path) -> None:
    assert "No drop-in" in talk.answer("keep").text
    talk.answer("go")
    reply = talk.answer("keep")
    kept = problem_file.with_name("softmax_optimized.py")
    assert str(kept) in reply.text
    assert kept.read_text() == "# h100-sxm strict\n"


def test_keep_to_a_path(talk: Conversation, tmp_path: Path) -> None:
    talk.answer("go")
    talk.answer(f"keep {tmp_path / 'new' / 'Fast.py'}")
    assert (tmp_path / "new" / "Fast.py").is_file()


def test_the_thread_outlives_the_process(
    talk: Conversation, runs: ScriptedRuns, tmp_path: Path
) -> None:
    talk.answer("target h200")
    later = Conversation(talk.problem, settings_for, runs.start, ignore, tmp_path / ".chat")
    assert later.thread == talk.thread
    assert "* 1" in later.answer("history").text


def test_a_damaged_thread_starts_anew(talk: Conversation, runs: ScriptedRuns) -> None:
    talk.answer("go")
    talk.path.write_text("{")
    later = Conversation(talk.problem, settings_for, runs.start, ignore, talk.folder)
    assert later.thread.steps == ()


def test_mistakes_are_answers(talk: Conversation, runs: ScriptedRuns) -> None:
    assert "Not understood" in talk.answer("what is love").text
    assert "speedup" in talk.answer("speedup 0").text
    assert runs.started == []
    assert talk.answer("quit").ended
