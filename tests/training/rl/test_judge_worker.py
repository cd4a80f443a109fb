"""Is a right kernel's speed what was measured, or what was estimated, and never both?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentkernel.domain.profile import Profile, ProfileFailed
from agentkernel.training.judged_problems import JudgedProblems, Verification
from agentkernel.training.rl.judge_worker import TurnJudge, TurnRequest, TurnSettings, reward_of
from tests.training.rl.stand_in import settings
from tests.training.training_rows import kernel, problem

CHECKED = Verification(policy="triton", budget_s=0.0, seeds=1)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> TurnJudge:
    asked = TurnSettings(verification=CHECKED, target="h100", speed="estimated")
    return TurnJudge(asked, tmp_path_factory.mktemp("turns"))


def ask(judge: TurnJudge, file: str, text: str = problem(0)) -> TurnRequest:
    return TurnRequest(problem=text, file=file)


def test_it_is_estimated_where_nobody_measures_and_says_so(judge: TurnJudge) -> None:
    turn = judge.answer(ask(judge, kernel(0))).turn
    assert turn.verdict is not None
    assert turn.verdict.accepted
    assert turn.speed is not None
    assert (turn.speed.by, turn.speed.own_share) == ("estimated", 1.0)
    assert turn.speed.speedup is not None
    assert turn.speed.speedup > 0
    assert any("estimated" in value for _, value in turn.facts)


@pytest.mark.slow
def test_an_estimate_never_stands_in_for_a_time(
    judge: TurnJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimated = judge._profile(kernel(0), judge._load(problem(0)))
    assert isinstance(estimated, Profile)
    asked = TurnSettings(verification=CHECKED, target="h100", speed="measured")
    other = TurnJudge(asked, tmp_path)
    found: list[Profile | ProfileFailed] = [
        estimated,
        ProfileFailed(side="gpu", reason="throttled"),
        ProfileFailed(side="candidate", reason="stale_output"),
        ProfileFailed(side="candidate", reason="timeout"),
        ProfileFailed(side="twin", reason="died"),
        ProfileFailed(side="inputs", reason="memory"),
    ]
    monkeypatch.setattr(other, "_profile", lambda file, known: found.pop(0))
    turns = [other.answer(ask(other, kernel(0))).turn for _ in range(6)]
    paid = [reward_of(turn, settings().rl) for turn in turns]
    unknown = "undecided"
    assert [item.outcome for item in paid] == [unknown, unknown, "hack", "wrong", unknown, unknown]
    assert [turn.speed for turn in turns] == [None] * 6
    assert turns[1].why == "not timed: gpu throttled"
    assert paid[2].hack == "profile:stale_output"


def test_few_problems_stay_loaded(tmp_path: Path) -> None:
    problems, paths = JudgedProblems(CHECKED, most=2), []
    for number in (1, 2, 3):
        paths.append(tmp_path / f"m{number}.py")
        paths[-1].write_text(problem(number))
    first = problems.load(paths[0])
    assert problems.load(paths[1]) is problems.load(paths[1])
    assert problems.load(paths[0]) is first
    namespace = problems.load(paths[1]).loaded.namespace
    problems.load(paths[0])
    problems.load(paths[2])
    assert len(problems) == 2
    assert problems.load(paths[0]) is first
    assert namespace is not None
    assert namespace.__name__ not in sys.modules


def test_a_problem_stays_loaded_and_is_what_the_question_says(judge: TurnJudge) -> None:
    loaded = judge._load(problem(3))
    assert judge._load(problem(3)) is loaded
    path = Path(loaded.loaded.problem.path)
    path.write_text(problem(2))
    assert judge._load(problem(3)).loaded.problem.source == problem(3)


def test_a_file_of_the_same_name_and_text_keeps_its_module(tmp_path: Path) -> None:
    problems, paths = JudgedProblems(CHECKED, most=1), []
    for folder in ("a", "b"):
        paths.append(tmp_path / folder / "m.py")
        paths[-1].parent.mkdir()
        paths[-1].write_text(problem(0))
    names = {problems.load(path).loaded.namespace for path in paths}
    kept = problems.load(paths[1]).loaded.namespace
    assert len(names) == 2
    assert kept is not None
    assert sys.modules[kept.__name__] is kept


def test_what_cannot_be_loaded_or_is_too_large_has_no_verdict(judge: TurnJudge) -> None:
    broken = judge.answer(ask(judge, kernel(0), "raise SystemExit('none')")).turn
    assert (broken.verdict, broken.file) == (None, kernel(0))
    large = problem(0).replace("randn(64)", "randn(64, 64, 64)")
    assert "too many" in judge.answer(ask(judge, kernel(0), large)).turn.why
