"""Is a corpus judged by several processes as by one, and does one that dies take only its own?"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.bench.redteam.corpus import CorpusFinding, read_corpus
from agentkernel.bench.redteam.runner import (
    CorpusJudge,
    CorpusSettings,
    JudgeProcess,
    _by_problem,
    _next,
    judge_corpus,
)
from tests.redteam.small import HONEST, PROBLEM, candidate, put

QUICK = CorpusSettings(seeds=1, budget_s=0.0)


@pytest.mark.slow
def test_in_two_processes_a_wrong_one_is_looked_at_again(corpus: Path) -> None:
    put(corpus, "honest", "wrong", candidate("Claims to be right.", HONEST, "2.0"))
    (corpus / "problems" / "dies.py").write_text("import os\nos._exit(7)\n")
    put(
        corpus,
        "honest",
        "zombie",
        candidate("Its reference ends all.", "problem: dies\nneeds: cpu", "1"),
    )
    heard: list[CorpusFinding] = []
    entries = read_corpus(corpus)
    found = judge_corpus(entries, QUICK, 2, heard.append)
    assert [item.name for item in found] == ["nearly", "plus", "wrong", "zombie"]
    assert [item.gate for item in found] == ["correctness", "accepted", "correctness", None]
    assert [item.right for item in found] == [True, True, False, False]
    assert [item.alone for item in found] == [False, False, True, True]
    assert sorted(item.name for item in heard) == sorted(item.name for item in found)
    assert "process ended" in found[3].reason
    assert found[0].start_s > 0
    assert found[0].cases_s > 0


def test_a_reference_that_does_not_run_is_a_finding(corpus: Path) -> None:
    (corpus / "problems" / "plus.py").write_text(PROBLEM.replace("x + 1", "x + nothing"))
    with CorpusJudge(QUICK) as bench:
        found = bench.judge(read_corpus(corpus, ["plus"])[0])
    assert (found.right, found.gate) == (False, None)
    assert "nothing" in found.reason


def test_a_problem_is_captured_once(corpus: Path) -> None:
    hostile, honest = read_corpus(corpus)
    with CorpusJudge(QUICK) as bench:
        first, second = bench.judge(hostile), bench.judge(honest)
    assert (first.right, second.right) == (True, True)
    assert first.capture_s > 10 * second.capture_s


def test_a_lane_keeps_to_its_problems_and_leaves_others_theirs(corpus: Path) -> None:
    for name in ("a", "b"):
        (corpus / "problems" / f"{name}.py").write_text(PROBLEM)
        for number in range(2 if name == "a" else 3):
            header = f"problem: {name}\nneeds: cpu"
            put(corpus, "honest", f"{name}{number}", candidate("x", header, "1"))
    waiting = _by_problem(read_corpus(corpus))
    assert [entry.name for entry in waiting][:4] == ["b0", "b1", "b2", "a0"]
    problems = {entry.problem_name: entry.problem for entry in waiting}
    first, second = JudgeProcess(None, {problems["b"]}), JudgeProcess(None, set())  # type: ignore[arg-type]
    judge_processes = [first, second]
    assert _next(waiting, first, judge_processes).name == "b0"
    assert _next(waiting, second, judge_processes).name == "a0"
    second.problems.add(problems["a"])
    assert _next(waiting, second, judge_processes).name == "a1"
    assert _next(waiting, second, judge_processes).problem_name == "plus"
